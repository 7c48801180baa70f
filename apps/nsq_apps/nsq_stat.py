"""The command nsq-stat: statistics of topics and channels of many nsqds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cli import Tool, lazily
from nsq_tools.stat.options import PROGRAM


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-stat until it ends. Return the exit status."""
    return Tool(PROGRAM, lazily("nsq_tools.stat.reports", "check"), lazily("nsq_tools.stat.reports", "run")).main(argv)


if __name__ == "__main__":
    sys.exit(main())
