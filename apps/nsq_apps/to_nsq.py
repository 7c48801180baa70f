"""The command to-nsq: publishes standard input, one message a record."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cli import Tool, lazily
from nsq_tools.to_nsq.options import PROGRAM


def main(argv: Sequence[str] | None = None) -> int:
    """Run to-nsq until it ends. Return the exit status."""
    return Tool(PROGRAM, lazily("nsq_tools.to_nsq.publisher", "check"), lazily("nsq_tools.to_nsq.publisher", "run")).main(argv)


if __name__ == "__main__":
    sys.exit(main())
