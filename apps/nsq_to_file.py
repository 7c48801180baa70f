"""The command nsq-to-file: the messages of topics, in files."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nsqd_py.logs import Log
from nsqd_py.settings import Options
from tools.cli import Tool
from tools.to_file.options import PROGRAM, check_options


def _run(options: Options, log: Log) -> int:
    from tools.to_file.service import Service

    return Service(options, log).run()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs nsq-to-file until a signal ends it, and returns the exit status."""
    return Tool(PROGRAM, check_options, _run).main(argv)


if __name__ == "__main__":
    sys.exit(main())
