"""The program nsq-cat: its name, what it does, and examples for `--help` and the reference page."""

from __future__ import annotations

from nsq_tools.cat.options import CatOptions
from nsq_tools.tail.program import REMOVED
from nsqd_py.settings.program import Program

PROGRAM = Program(
    "nsq_cat",
    "nsq-cat",
    "Show the messages in files of nsq-to-file, in logs and in stores of nsqd, each followed by a line feed. Neither nsqd nor "
    "Spark is needed. Damaged parts are reported on standard error, and reading goes on after them.",
    CatOptions,
    examples=(
        ("The messages of an archive that contain a word", "nsq-cat --grep paid /archive"),
        ("What nsqd has stored of a topic, as JSON objects", "nsq-cat --jsonl /var/lib/nsqd/orders.*.log"),
        (
            "The messages of the last two hours of a topic in a store, also s3://bucket/prefix",
            "nsq-cat --topic=orders --start=-2h /var/lib/store",
        ),
        ("What another program writes", "zcat /archive/old.log.gz | nsq-cat --grep error -"),
    ),
    argument="files",
    removed=REMOVED,
)
