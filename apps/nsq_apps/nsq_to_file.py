"""The command nsq-to-file: archives messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import RELOAD, begin

if TYPE_CHECKING:
    from nsq_apps.starting import Work
    from nsq_tools.to_file.options import ToFileOptions


def _work() -> Work[ToFileOptions]:
    from nsq_tools.to_file.service import check, run

    return check, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-file until it ends. Return the exit status."""
    begin(RELOAD)  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.to_file.program import PROGRAM

    return run_tool(PROGRAM, _work, argv)


if __name__ == "__main__":
    sys.exit(main())
