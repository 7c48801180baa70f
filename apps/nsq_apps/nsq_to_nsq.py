"""The command nsq-to-nsq: publishes the messages of topics to other nsqds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_tools.nsq_to_nsq.options import NsqToNsqOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _check(options: NsqToNsqOptions) -> None:
    from nsq_tools.nsq_to_nsq.forwarder import check

    check(options)


def _run(options: NsqToNsqOptions, log: Log) -> int:
    from nsq_tools.nsq_to_nsq.forwarder import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-nsq until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.nsq_to_nsq.program import PROGRAM

    return run_tool(PROGRAM, _check, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
