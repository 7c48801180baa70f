"""Checks the options of spark-replay before its run."""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec

from nsq_spark.replay.options import ReplayOptions
from nsqd_py.client.tool_checks import check_name, check_sources, client_options
from nsqd_py.runtime.command import is_terminal
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.settings.program import ToolError

_PACKAGES = ("pyspark", "pyarrow", "pandas")


def check(options: ReplayOptions) -> None:
    """Raise BadOptions for wrong options, and ToolError if packages are missing. Reads the clock, for -2h."""
    if not options.archive:
        raise BadOptions("name an archive: spark-replay /path/of/files, or --archive=/path/of/files")
    if options.nsqd_tcp_address or options.lookupd_http_address:
        check_sources(options)
    elif not options.dry_run:
        raise BadOptions("--nsqd-tcp-address or --lookupd-http-address required (--dry-run needs none)")
    client_options(options.producer_opt, "producer-opt")
    if options.to_topic:
        check_name(options.to_topic, "to-topic")
    if options.dead_letter_topic:
        check_name(options.dead_letter_topic, "dead-letter-topic")
    can_ask = is_terminal(sys.stdin) and is_terminal(sys.stderr)
    if not (options.yes or options.dry_run or can_ask):
        raise BadOptions(
            "there is no terminal to ask on: --yes starts without asking, --dry-run shows what there is"
        )
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ToolError(f"it needs {', '.join(missing)}: pip install 'nsqd-py[spark]'")
    # These need the packages.
    from nsq_spark.replay.job import job_of
    from nsq_spark.replay.output.summary import STANDARD_OUTPUT, check_file

    job = job_of(options, time.time_ns())
    if options.catch_up and job.speed is None:
        raise BadOptions("--catch-up needs --speed")
    check_file("refused-file", options.refused_file)
    if options.report != STANDARD_OUTPUT:
        check_file("report", options.report)
