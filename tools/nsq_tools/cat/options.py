"""The settings of nsq-cat: the files, and those of the output, as nsq-tail has them."""

from __future__ import annotations

from nsq_tools.tail.options import ShownOptions
from nsqd_py.settings.declaration import Options, setting, string, strings
from nsqd_py.settings.program import ProgramOptions
from nsqd_py.settings.types import STRINGS, Strings


class _ShownFiles(Options, title="Files"):
    files: Strings = setting(
        STRINGS,
        ("-",),
        "File to read; - is standard input. Of a directory, all files below it that nsq-to-file has finished, and the logs of "
        "nsqd, by name. Formats are recognized: lines, jsonl, framed and parquet of nsq-to-file, "
        "also compressed with gzip or zstd, and the logs (*.log) in a data path of nsqd. Also a store of nsqd (--store), as "
        "s3://bucket/prefix, gs://…, az://…, file:///path or its directory: all messages that it has, topic by topic, "
        "each once (may be given several times).",
    )


class _ShownMessages(Options, title="Selection"):
    topic: Strings = strings(
        "Show only the messages of this topic (may be given several times); files without topics (lines) have none.",
        short="t",
    )
    start: str = string(
        "Show messages that were published at this time or later: RFC 3339 (UTC without an offset), a number of s, ms or ns "
        "since the epoch, or an age (-2h, -1d12h). Files of a store are read only if they have messages of this time."
    )
    end: str = string("Show messages that were published before this time.")


class CatOptions(ProgramOptions, _ShownFiles, _ShownMessages, ShownOptions):
    """The options of nsq-cat."""
