"""The command nsq-to-file: archives the messages of topics in files."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsqd_py.runtime.command import RELOAD, hold_signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-file until a signal ends it. Return the exit status."""
    hold_signals(RELOAD)  # before the imports, which take most of the start
    from nsq_tools.cli import Tool, lazily
    from nsq_tools.to_file.options import PROGRAM

    service = "nsq_tools.to_file.service"
    return Tool(PROGRAM, lazily(service, "check"), lazily(service, "run")).main(argv)


if __name__ == "__main__":
    sys.exit(main())
