"""The command to-nsq: publishes files or standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_tools.to_nsq.options import ToNsqOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _check(options: ToNsqOptions) -> None:
    from nsq_tools.to_nsq.publisher import check

    check(options)


def _run(options: ToNsqOptions, log: Log) -> int:
    from nsq_tools.to_nsq.publisher import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run to-nsq until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.to_nsq.program import PROGRAM

    return run_tool(PROGRAM, _check, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
