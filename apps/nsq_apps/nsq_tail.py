"""The command nsq-tail: shows the messages of topics as they arrive."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_apps.starting import Work
    from nsq_tools.tail.options import TailOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _run(options: TailOptions, log: Log) -> int:
    if options.since_ns or options.last:
        from nsq_tools.tail.log_tailing import run  # with an HTTP client and TLS, 15 ms of a start
    else:
        from nsq_tools.tail.tailing import run

    return run(options, log)


def _work() -> Work[TailOptions]:
    from nsq_tools.tail.tailing import check

    return check, _run


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-tail until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.tail.program import PROGRAM

    return run_tool(PROGRAM, _work, argv)


if __name__ == "__main__":
    sys.exit(main())
