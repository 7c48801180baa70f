"""The command nsq-cat: shows the messages in files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_tools.cat.options import CatOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _check(options: CatOptions) -> None:
    from nsq_tools.cat.selection import selection_of
    from nsq_tools.tail.rendering import check_shown

    check_shown(options)
    selection_of(options)


def _run(options: CatOptions, log: Log) -> int:
    from nsq_tools.cat.reading import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-cat until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.cat.program import PROGRAM

    return run_tool(PROGRAM, _check, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
