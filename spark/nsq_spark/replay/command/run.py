"""spark-replay from its beginning to its end: Spark starts first, since that takes longest."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from nsq_tools.cli import FAILED, ToolError

from nsq_spark.archive.errors import ArchiveError
from nsq_spark.java import JavaNotFound
from nsq_spark.replay.command.figures import shown
from nsq_spark.replay.command.question import say
from nsq_spark.replay.command.spark_wanted import spark_of
from nsq_spark.replay.command.stopping import Stopping
from nsq_spark.replay.errors import ReplayError
from nsq_spark.replay.options import ReplayOptions
from nsq_spark.session import Session, SessionFailed
from nsqd_py.errors import NsqdError


def run(options: ReplayOptions, command_line: str) -> int:
    """The exit status; `command_line` is what repeats it. Raises ToolError."""
    _silence_libraries()
    wanted = spark_of(options)
    with _one_line_errors(), Stopping() as stopping:
        try:
            with Session(wanted.master, wanted.conf, is_light=wanted.is_light) as session:
                from nsq_spark.replay.command.work import Work  # 0.4 s, in which Spark starts

                return Work(options, command_line, wanted, session, stopping).run()
        except JavaNotFound as error:
            from nsq_spark.replay.command.request import job_of
            from nsq_spark.replay.command.work import report_failure

            began_ns = time.time_ns()
            report_failure(options, job_of(options, began_ns), error, began_ns)
            raise
        except KeyboardInterrupt:
            say("stopped; nothing was sent")
            return FAILED


def _silence_libraries() -> None:
    """PySpark and py4j log errors, with stacks, that are raised as well; and all that a stop cuts short."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except (ReplayError, ArchiveError, NsqdError, JavaNotFound, SessionFailed) as error:
        raise ToolError(shown(str(error))) from error
