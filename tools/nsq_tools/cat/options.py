"""The settings of nsq-cat: the files, and those of the output, as nsq-tail has them."""

from __future__ import annotations

from nsq_tools.tail.options import ShownOptions
from nsqd_py.settings.declaration import Options, setting
from nsqd_py.settings.program import ProgramOptions
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
