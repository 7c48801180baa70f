"""The command nsq-worker: runs the handlers of an app of nsqd_py.work."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_tools.worker.options import WorkerOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _check(options: WorkerOptions) -> None:
    from nsq_tools.worker.commands import check

    check(options)


def _run(options: WorkerOptions, log: Log) -> int:
    from nsq_tools.worker.commands import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-worker until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.worker.program import PROGRAM

    return run_tool(PROGRAM, _check, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
