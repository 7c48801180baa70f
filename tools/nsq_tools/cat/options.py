"""The settings of nsq-cat: the files, and those of the output, as nsq-tail has them."""

from __future__ import annotations

from nsq_tools.tail.options import REMOVED, ShownOptions
from nsqd_py.settings.declaration import Options, setting
from nsqd_py.settings.program import Program, ProgramOptions
from nsqd_py.settings.types import STRINGS, Strings


class _ShownFiles(Options, title="Files"):
    files: Strings = setting(
        STRINGS,
        ("-",),
        "File to read; - is standard input. Of a directory, all files below it that nsq-to-file has finished, and the logs of "
        "nsqd, by name. Formats are recognized: lines, jsonl, framed and parquet of nsq-to-file, "
        "also compressed with gzip or zstd, and the logs (*.log) in a data path of nsqd (may be given several times).",
    )


class CatOptions(ProgramOptions, _ShownFiles, ShownOptions):
    """The options of nsq-cat."""


PROGRAM = Program(
    "nsq_cat",
    "nsq-cat",
    "Show the messages in files of nsq-to-file and in logs of nsqd, each followed by a line feed. Neither nsqd nor "
    "Spark is needed. Damaged parts are reported on standard error, and reading goes on after them.",
    CatOptions,
    examples=(
        ("The messages of an archive that contain a word", "nsq-cat --grep paid /archive"),
        ("What nsqd has stored of a topic, as JSON objects", "nsq-cat --jsonl /var/lib/nsqd/orders.*.log"),
        ("What another program writes", "zcat /archive/old.log.gz | nsq-cat --grep error -"),
    ),
    argument="files",
    removed=REMOVED,
)
