"""The command nsq-worker: runs the handlers of an app of nsqd_py.work."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_apps.starting import Work
    from nsq_tools.worker.options import WorkerOptions


def _work() -> Work[WorkerOptions]:
    from nsq_tools.worker.commands import check, run

    return check, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-worker until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.worker.program import PROGRAM

    return run_tool(PROGRAM, _work, argv)


if __name__ == "__main__":
    sys.exit(main())
