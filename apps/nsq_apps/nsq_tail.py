"""The command nsq-tail: shows the messages of topics as they arrive."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cli import Tool, lazily
from nsq_tools.tail.options import PROGRAM


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-tail until it ends. Return the exit status."""
    return Tool(PROGRAM, lazily("nsq_tools.tail.tailing", "check"), lazily("nsq_tools.tail.log_tailing", "run")).main(argv)


if __name__ == "__main__":
    sys.exit(main())
