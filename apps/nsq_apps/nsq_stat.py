"""The command nsq-stat: statistics of topics and channels of many nsqds."""

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
    """Run nsq-stat until it ends. Return the exit status."""
    return Tool(PROGRAM, check_options, _run).main(argv)


if __name__ == "__main__":
    sys.exit(main())
