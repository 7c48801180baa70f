"""The command nsq-stat: shows statistics of topics and channels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_apps.starting import Work
    from nsq_tools.stat.options import StatOptions


def _work() -> Work[StatOptions]:
    from nsq_tools.stat.reports import check, run

    return check, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-stat until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.stat.program import PROGRAM

    return run_tool(PROGRAM, _work, argv)


if __name__ == "__main__":
    sys.exit(main())
