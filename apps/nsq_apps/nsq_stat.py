"""The command nsq-stat: shows statistics of topics and channels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_tools.stat.options import StatOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _check(options: StatOptions) -> None:
    from nsq_tools.stat.reports import check

    check(options)


def _run(options: StatOptions, log: Log) -> int:
    from nsq_tools.stat.reports import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-stat until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.stat.program import PROGRAM

    return run_tool(PROGRAM, _check, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
