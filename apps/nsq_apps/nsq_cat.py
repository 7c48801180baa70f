"""The command nsq-cat: shows the messages in files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_apps.starting import Work
    from nsq_tools.cat.options import CatOptions


def _work() -> Work[CatOptions]:
    from nsq_tools.cat.reading import check, run

    return check, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-cat until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.cat.program import PROGRAM

    return run_tool(PROGRAM, _work, argv)


if __name__ == "__main__":
    sys.exit(main())
