"""The command nsq-to-file: archives the messages of topics in files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import RELOAD, hold_signals

if TYPE_CHECKING:
    from nsq_tools.to_file.options import ToFileOptions
    from nsqd_py.runtime.logs import Log


def _run(options: ToFileOptions, log: Log) -> int:
    from nsq_tools.to_file.service import Service

    return Service(options, log).run()


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-to-file until a signal ends it. Return the exit status."""
    hold_signals(RELOAD)  # before the imports, which take most of the start
    from nsq_tools.cli import Tool
    from nsq_tools.to_file.options import PROGRAM, check_options

    return Tool(PROGRAM, check_options, _run).main(argv)


if __name__ == "__main__":
    sys.exit(main())
