"""The command nsq-to-http: sends each message in an HTTP request."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cli import Tool
from nsq_tools.to_http.options import PROGRAM, ToHttpOptions, check
from nsqd_py.runtime.logs import Log


def _run(options: ToHttpOptions, log: Log) -> int:
    from nsq_tools.to_http.run import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-http until a signal ends it. Return the exit status."""
    return Tool(PROGRAM, check, _run).main(argv)


if __name__ == "__main__":
    sys.exit(main())
