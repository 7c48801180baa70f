"""The command spark-replay: publishes again what an archive holds."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from nsqd_py.logs import Log
from nsqd_py.settings import Options
from spark.replay.options import PROGRAM, check
from tools.cli import Tool


def main(argv: Sequence[str] | None = None) -> int:
    """Runs spark-replay to its end, and returns the exit status."""
    words = sys.argv[1:] if argv is None else argv

    def run(options: Options, log: Log) -> int:
        from spark.replay.command import run

        return run(options, shlex.join([PROGRAM.command, *words]))

    return Tool(PROGRAM, check, run).main(words)


if __name__ == "__main__":
    sys.exit(main())
