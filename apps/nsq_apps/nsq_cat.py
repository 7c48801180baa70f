"""The command nsq-cat: shows the messages in archives and in logs of nsqd."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsq_tools.cat.options import PROGRAM, CatOptions, check
from nsq_tools.cli import Tool
from nsqd_py.runtime.logs import Log


def _run(options: CatOptions, log: Log) -> int:
    from nsq_tools.cat.run import run

    return run(options)


def main(argv: Sequence[str] | None = None) -> int:
    """Run nsq-cat until it ends. Return the exit status."""
    return Tool(PROGRAM, check, _run).main(argv)


if __name__ == "__main__":
    sys.exit(main())
