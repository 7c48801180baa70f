"""The settings of to-nsq: those of Go's to_nsq, and how long to wait for an nsqd that is away."""

from __future__ import annotations

from dataclasses import replace

from nsq_tools.cli import BadUsage
from nsq_tools.options import (
    NSQD_TCP,
    PRODUCER_OPT,
    TOPIC,
    check_client_options,
    check_name,
    check_nsqd_addresses,
    log_settings,
)
from nsq_tools.to_nsq.delimiter import parse_delimiter
from nsqd_py.settings.declaration import Options, Program, Setting
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS
from nsqd_py.settings.types import DURATION, INT, STRING

# fmt: off
DESTINATIONS = replace(NSQD_TCP,
    help="TCP address (host:port) of an nsqd to publish to (may be given several times: each gets every message).")
DELIMITER = Setting("delimiter", STRING, "\n",
    r"The byte between two records; also as \n, \t, \r, \0, \\ or \x1e.", default_text=r'"\n"')
RATE = Setting("rate", INT, 0, "How many messages to publish a second, at most. 0 is no limit.")
RETRY_TIMEOUT = Setting("retry-timeout", DURATION, MINUTE_NS,
    "How long to try again, with growing pauses, while an nsqd takes nothing; then to-nsq fails.",
    check=lambda value: None if value >= SECOND_NS else "--retry-timeout must be at least 1s")

PROGRAM = Program("to_nsq", "to-nsq",
    "Publishes standard input, a message a record. Records go out as they come, many in one command where many are "
    "there; empty ones are left out. It ends when every nsqd has acknowledged every message.",
    {
        "Destination": (DESTINATIONS, TOPIC, PRODUCER_OPT, RETRY_TIMEOUT),
        "Input": (DELIMITER, RATE),
        "Log": log_settings("[to_nsq] "),
    },
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


def check(options: Options) -> None:
    """Raises BadUsage for what cannot be."""
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
