"""The command to-nsq: publishes standard input, one message a record."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cli import Tool
from nsq_tools.to_nsq.options import PROGRAM, ToNsqOptions, check
from nsqd_py.runtime.logs import Log


def _run(options: ToNsqOptions, log: Log) -> int:
    from nsq_tools.to_nsq.publisher import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run to-nsq until it ends. Return the exit status."""
    return Tool(PROGRAM, check, _run).main(argv)


if __name__ == "__main__":
    sys.exit(main())
