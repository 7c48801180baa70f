"""The command spark-replay: publishes the messages of an archive again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_apps.starting import Work
    from nsq_spark.replay.options import ReplayOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _run(words: Sequence[str], options: ReplayOptions, log: Log) -> int:
    from nsq_spark.replay.command import run  # with packages that the check asks for
    from nsqd_py.settings.flags import shown_words

    return run(options, shown_words(words, options.settings.values()))


def _work(words: Sequence[str]) -> Work[ReplayOptions]:
    from nsq_spark.replay.checks import check

    return check, partial(_run, words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run spark-replay until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_spark.replay.options import PROGRAM

    words = sys.argv[1:] if argv is None else argv
    return run_tool(PROGRAM, partial(_work, words), words)


if __name__ == "__main__":
    sys.exit(main())
