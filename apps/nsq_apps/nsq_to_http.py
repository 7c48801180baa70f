"""The command nsq-to-http: sends each message in an HTTP request."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_apps.starting import Work
    from nsq_tools.to_http.options import ToHttpOptions


def _work() -> Work[ToHttpOptions]:
    from nsq_tools.to_http.requests import check
    from nsq_tools.to_http.run import run

    return check, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-http until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.to_http.program import PROGRAM

    return run_tool(PROGRAM, _work, argv)


if __name__ == "__main__":
    sys.exit(main())
