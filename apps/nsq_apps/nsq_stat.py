"""The command nsq-stat: what topics and channels of many nsqd are doing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cli import Tool
from nsq_tools.stat.options import PROGRAM, StatOptions, check_options

from nsqd_py.runtime.logs import Log


def _run(options: StatOptions, log: Log) -> int:
    from nsq_tools.stat.run import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs nsq-stat to its end, and returns the exit status."""
    return Tool(PROGRAM, check_options, _run).main(argv)


if __name__ == "__main__":
    sys.exit(main())
