"""The settings of to-nsq: those of Go's to_nsq, the files, and --retry-timeout."""

from __future__ import annotations

from nsqd_py.settings.declaration import Options, at_least, setting, strings
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS, format_duration
from nsqd_py.settings.program import LogOptions, ProgramOptions, log_prefix_setting
from nsqd_py.settings.tools import PRODUCER_OPT, TOPIC
from nsqd_py.settings.types import DURATION, INT, STRING, STRINGS, Strings


class _Destination(Options, title="Destination"):
    nsqd_tcp_address: Strings = strings(
        "TCP address (host:port) of an nsqd to publish to (may be given several times; each receives every message)."
    )
    topic: str = TOPIC
    producer_opt: Strings = PRODUCER_OPT
    retry_timeout_ns: int = setting(
        DURATION,
        MINUTE_NS,
        "Time for which publishing to an nsqd is retried, with growing delays, before to-nsq fails.",
        check=at_least(SECOND_NS, format_duration),
    )


class _Input(Options, title="Input"):
    files: Strings = setting(
        STRINGS,
        ("-",),
        "File to publish, a message for each record; - is standard input (may be given several times).",
    )
    delimiter: str = setting(
        STRING,
        "\n",
        r"Byte that separates records; \n, \t, \r, \0, \\ and \x1e are accepted.",
        default_text=r'"\n"',
    )
    rate: int = setting(INT, 0, "Maximum number of messages a second; 0 means no limit.")


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[to_nsq] ")


class ToNsqOptions(ProgramOptions, _Destination, _Input, _Log):
    """The options of to-nsq."""
