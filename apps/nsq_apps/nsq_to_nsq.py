"""The command nsq-to-nsq: forwards messages to other nsqds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cli import Tool, lazily
from nsq_tools.nsq_to_nsq.options import PROGRAM


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-nsq until a signal ends it. Return the exit status."""
    return Tool(PROGRAM, lazily("nsq_tools.nsq_to_nsq.forwarder", "check"), lazily("nsq_tools.nsq_to_nsq.forwarder", "run")).main(
        argv
    )


if __name__ == "__main__":
    sys.exit(main())
