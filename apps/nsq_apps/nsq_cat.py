"""The command nsq-cat: shows the messages in archives and in logs of nsqd."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cat.options import PROGRAM
from nsq_tools.cli import Tool, lazily


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-cat until it ends. Return the exit status."""
    return Tool(PROGRAM, lazily("nsq_tools.tail.rendering", "check_shown"), lazily("nsq_tools.cat.reading", "run")).main(argv)


if __name__ == "__main__":
    sys.exit(main())
