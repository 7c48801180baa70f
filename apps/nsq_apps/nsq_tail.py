"""The command nsq-tail: shows the messages of topics as they arrive."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cli import Tool
from nsq_tools.tail.options import PROGRAM, TailOptions, check
from nsqd_py.runtime.logs import Log


def _run(options: TailOptions, log: Log) -> int:
    if options.since_ns or options.last:
        from nsq_tools.tail.log_tailing import run
    else:
        from nsq_tools.tail.tailing import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-tail until it ends. Return the exit status."""
    return Tool(PROGRAM, check, _run).main(argv)


if __name__ == "__main__":
    sys.exit(main())
