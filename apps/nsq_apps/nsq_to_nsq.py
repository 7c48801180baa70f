"""The command nsq-to-nsq: forwards messages to other nsqds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cli import Tool
from nsq_tools.nsq_to_nsq.options import PROGRAM, NsqToNsqOptions, check
from nsqd_py.runtime.logs import Log


def _run(options: NsqToNsqOptions, log: Log) -> int:
    from nsq_tools.nsq_to_nsq.run import run

    return run(options, log)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-nsq until a signal ends it. Return the exit status."""
    return Tool(PROGRAM, check, _run).main(argv)


if __name__ == "__main__":
    sys.exit(main())
