"""The command spark-compact: copies the messages of stores of nsqd into large Parquet files and tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_spark.compact.options import CompactOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _check(options: CompactOptions) -> None:
    from nsq_spark.compact.options import check

    check(options)


def _run(options: CompactOptions, log: Log) -> int:
    from nsq_spark.compact.command import run

    return run(options)


def main(argv: Sequence[str] | None = None) -> int:
    """Run spark-compact until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_spark.compact.program import PROGRAM

    return run_tool(PROGRAM, _check, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
