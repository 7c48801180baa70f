"""The settings that several tools share, with the names and defaults of Go's tools. `tool_checks` checks them."""

from __future__ import annotations

from functools import partial

from nsqd_py.settings.completion import channel_names, topic_names
from nsqd_py.settings.declaration import (
    BadOptions,
    Options,
    at_least,
    bad_options,
    setting,
    string,
    strings,
    urls,
)
from nsqd_py.settings.durations import parse_time
from nsqd_py.settings.types import CLIENT_OPTIONS, INT, STRING, Strings

TOPIC = string("NSQ topic.", short="t", complete=topic_names)
TOPICS = strings("NSQ topic (may be given several times).", short="t", complete=topic_names)
# Declares --channel; the arguments are those of `setting`.
channel_setting = partial(setting, STRING, short="c", complete=channel_names)
MAX_IN_FLIGHT = setting(INT, 200, "Maximum number of messages in flight.", check=at_least(1))
CONSUMER_OPT = setting(
    CLIENT_OPTIONS,
    (),
    "Option of the consumer as name,value with the names of go-nsq's Config, such as tls_v1,true or "
    "msg_timeout,30s (may be given several times).",
)
PRODUCER_OPT = setting(
    CLIENT_OPTIONS,
    (),
    "Option of the producer as name,value with the names of go-nsq's Config, such as snappy,true or "
    "dial_timeout,5s (may be given several times).",
)


class SourceOptions(Options):
    """The settings of a tool that consumes: addresses of nsqds, or of nsqlookupds that list them."""

    nsqd_tcp_address: Strings = strings(
        "TCP address (host:port) of an nsqd to consume from (may be given several times)."
    )
    lookupd_http_address: Strings = urls(
        "HTTP address (host:port) of an nsqlookupd that lists the nsqds of the topic (may be given several times)."
    )


def times_of(start: str, end: str, now_ns: int) -> tuple[int | None, int | None]:
    """Return the times of --start and --end, in ns since the epoch; None where there is none. Raises BadOptions."""
    start_ns = _time("start", start, now_ns)
    end_ns = _time("end", end, now_ns)
    if start_ns is not None and end_ns is not None and start_ns >= end_ns:
        raise BadOptions(f"--start {start!r} must be before --end {end!r}")
    return start_ns, end_ns


def _time(flag: str, text: str, now_ns: int) -> int | None:
    if not text:
        return None
    with bad_options(f"--{flag}: "):
        return parse_time(text, now_ns)
