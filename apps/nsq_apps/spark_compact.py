"""The command spark-compact: copies the messages of stores of nsqd into large Parquet files and tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqd_py.runtime.command import begin

if TYPE_CHECKING:
    from nsq_apps.starting import Work
    from nsq_spark.compact.options import CompactOptions
    from nsqd_py.runtime.logs.daemon_log import Log


def _run(options: CompactOptions, log: Log) -> int:
    from nsq_spark.compact.command import run  # with packages that the check asks for

    return run(options)


def _work() -> Work[CompactOptions]:
    from nsq_spark.compact.options import check

    return check, _run


def main(argv: Sequence[str] | None = None) -> int:
    """Run spark-compact until it ends. Return the exit status."""
    begin()  # before the imports, which take most of the start
    from nsq_apps.starting import run_tool
    from nsq_spark.compact.program import PROGRAM

    return run_tool(PROGRAM, _work, argv)


if __name__ == "__main__":
    sys.exit(main())
