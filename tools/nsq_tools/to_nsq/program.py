"""The program to-nsq: its name, what it does, and examples for `--help` and the reference page."""

from __future__ import annotations

from nsq_tools.to_nsq.options import ToNsqOptions
from nsqd_py.settings.program import Program

PROGRAM = Program(
    "to_nsq",
    "to-nsq",
    "Publish files or standard input, one message a record. Records are published as they arrive, in batches if there are many. "
    "Empty records are skipped. It exits when every nsqd has acknowledged every message.",
    ToNsqOptions,
    examples=(
        (
            "Publish each line of a file",
            "to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=orders orders.jsonl",
        ),
        (
            "Publish the output of a program as it is written",
            "tail -F access.log | to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=access",
            "run: until-command=\"curl -s '127.0.0.1:4151/stats?topic=access' | grep 'depth: 3'\"",
        ),
        (
            "Publish file names, which may contain line feeds, at most a thousand a second",
            r"find . -print0 | to-nsq --nsqd-tcp-address=127.0.0.1:4150 --topic=files --delimiter='\0' --rate=1000",
        ),
    ),
    argument="files",
)
