"""The command nsq-to-http: sends each message in an HTTP request."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_tools.to_http.options import ToHttpOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _check(options: ToHttpOptions) -> None:
    from nsq_tools.to_http.requests import check

    check(options)


def _run(options: ToHttpOptions, log: Log) -> int:
    from nsq_tools.to_http.run import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-http until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_tools.to_http.program import PROGRAM

    return run_tool(PROGRAM, _check, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
