"""The settings of to-nsq: those of Go's to_nsq, and how long to wait for an nsqd that is away."""

from __future__ import annotations

from nsq_tools.cli import BadUsage
from nsq_tools.options import (
    PRODUCER_OPT,
    TOPIC,
    check_client_options,
    check_name,
    check_nsqd_addresses,
)
from nsq_tools.to_nsq.delimiter import parse_delimiter
from nsqd_py.settings.declaration import Options, setting
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS
from nsqd_py.settings.groups import LogOptions, log_prefix_setting
from nsqd_py.settings.program import Program, ProgramOptions
from nsqd_py.settings.types import DURATION, INT, STRING, STRINGS


# fmt: off
class _Destination(Options, title="Destination"):
    nsqd_tcp_address: tuple[str, ...] = setting(STRINGS, (),
        "TCP address (host:port) of an nsqd to publish to (may be given several times: each gets every message).")
    topic: str = TOPIC
    producer_opt: tuple[str, ...] = PRODUCER_OPT
    retry_timeout_ns: int = setting(DURATION, MINUTE_NS,
        "How long to try again, with growing pauses, while an nsqd takes nothing; then to-nsq fails.",
        check=lambda value: None if value >= SECOND_NS else "must be at least 1s")


class _Input(Options, title="Input"):
    delimiter: str = setting(STRING, "\n",
        r"The byte between two records; also as \n, \t, \r, \0, \\ or \x1e.", default_text=r'"\n"')
    rate: int = setting(INT, 0, "How many messages to publish a second, at most. 0 is no limit.")


class _Log(LogOptions, title="Log"):
    log_prefix: str = log_prefix_setting("[to_nsq] ")


class ToNsqOptions(ProgramOptions, _Destination, _Input, _Log):
    """The options of to-nsq."""


PROGRAM = Program("to_nsq", "to-nsq",
    "Publishes standard input, a message a record. Records go out as they come, many in one command where many are "
    "there; empty ones are left out. It ends when every nsqd has acknowledged every message.",
    ToNsqOptions,
    examples=(
        ("Publish each line of a file", "to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=orders < orders.jsonl"),
        ("Publish what a program writes, as it writes it",
         "tail -F access.log | to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=access",
         "run: until-command=\"curl -s '127.0.0.1:4151/stats?topic=access' | grep 'depth: 3'\""),
        ("Publish names of files, which may contain line feeds, a thousand a second",
         r"find . -print0 | to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=files --delimiter='\0' --rate=1000"),
        ("Publish a file to two nsqd",
         "to-nsq --nsqd-tcp-address=10.0.0.1:4150 --nsqd-tcp-address=10.0.0.2:4150 --topic=orders < orders.jsonl"),
    ))
# fmt: on


def check(options: ToNsqOptions) -> None:
    """Raise BadUsage if the options cannot be used."""
    if not options.topic:
        raise BadUsage("--topic required")
    check_name(options.topic, "topic")
    try:
        parse_delimiter(options.delimiter)
    except ValueError as error:
        raise BadUsage(str(error)) from None
    if not options.nsqd_tcp_address:
        raise BadUsage("--nsqd-tcp-address required")
    check_nsqd_addresses(options.nsqd_tcp_address)
    check_client_options(options.producer_opt, "producer-opt")
