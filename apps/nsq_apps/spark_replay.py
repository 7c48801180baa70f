"""The command spark-replay: publishes messages of an archive again."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from nsq_spark.replay.options import PROGRAM, ReplayOptions, check
from nsq_tools.cli import Tool
from nsqd_py.runtime.logs import Log
from nsqd_py.settings.flags import shown_words


def main(argv: Sequence[str] | None = None) -> int:
    """Run spark-replay until it ends. Return the exit status."""
    words = sys.argv[1:] if argv is None else argv

    def run(options: ReplayOptions, log: Log) -> int:
        from nsq_spark.replay.command import run

        return run(options, shlex.join([PROGRAM.command, *shown_words(words, PROGRAM.settings)]))

    return Tool(PROGRAM, check, run).main(words)


if __name__ == "__main__":
    sys.exit(main())
