"""The command nsq-to-file: archives messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import RELOAD, begin

if TYPE_CHECKING:
    from nsq_tools.to_file.options import ToFileOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _check(options: ToFileOptions) -> None:
    from nsq_tools.to_file.service import check

    check(options)


def _run(options: ToFileOptions, log: Log) -> int:
    from nsq_tools.to_file.service import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-file until it ends. Return the exit status."""
    begin(RELOAD)  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.to_file.program import PROGRAM

    return run_tool(PROGRAM, _check, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
