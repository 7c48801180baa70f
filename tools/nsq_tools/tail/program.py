"""The program nsq-tail: its name, what it does, and examples for `--help` and the reference page."""

from __future__ import annotations

from nsq_tools.tail.options import TailOptions
from nsqd_py.settings.program import Program

REMOVED = {"json": "pipe the output to jq", "format": "use --jsonl, and pipe the output to jq"}

PROGRAM = Program(
    "nsq_tail",
    "nsq-tail",
    "Show new messages of topics, each followed by a line feed. In a pipe, bodies are written unchanged; on a "
    "terminal, control characters are escaped. A message is finished after it is written.",
    TailOptions,
    examples=(
        (
            "Watch a topic on one nsqd",
            "nsq-tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders",
            'run: until="paid"',
        ),
        (
            "Two fields of the messages that failed",
            "nsq-tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --grep '\"status\": ?5' --pick .id --pick .status",
            'run: until="50\\d"',
        ),
        (
            "The last ten messages that nsqd keeps, and then new ones",
            "nsq-tail --nsqd-tcp-address=127.0.0.1:4150 --topic=orders --last 10",
            'run: until="paid"',
        ),
    ),
    removed=REMOVED,
)
