"""Counts of tasks while they run, in files of a directory that driver and executors share. It needs no port.

Spark tells the driver of a task when it ends. So each process that works on a task writes its counts a few times a
second; the driver reads them, and asks for an end with a file too. Where executors do not see the directory, an
accumulator of Spark brings the counts when tasks end, and Spark cancels the tasks.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson

from nsq_spark.replay.errors import Stopped

if TYPE_CHECKING:
    from pyspark import SparkContext

REPORT_INTERVAL_S = 0.2
_STOP = "stop"


@dataclass(slots=True)
class ReplayCounts:
    """Messages and bytes of one or several tasks: `read_bytes` are of files, `sent_bytes` of bodies."""

    read: int = 0
    read_bytes: int = 0
    matched: int = 0
    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0

    def add(self, other: ReplayCounts) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class TaskReport(NamedTuple):
    """The counts of one attempt of a task, and its error. A task through Spark SQL has a reader and a sender."""

    role: str
    task: int
    attempt: int
    counts: dict[str, int]
    failure: str = ""


class Board:
    """The driver's side. `failure` is the error of the first task that failed."""

    def __init__(self, context: SparkContext, parent: str | None = None) -> None:
        """Make a directory in `parent`, or among Spark's temporary files; `close` removes it."""
        from pyspark.accumulators import AccumulatorParam

        class Joined(AccumulatorParam[list[TaskReport]]):
            def zero(self, value: list[TaskReport]) -> list[TaskReport]:
                return []

            def addInPlace(self, value1: list[TaskReport], value2: list[TaskReport]) -> list[TaskReport]:
                return value1 + value2

        if parent is None:
            parent = (context.getConf().get("spark.local.dir") or "").partition(",")[0]
        self._directory = Path(tempfile.mkdtemp(prefix="nsq-replay-", dir=parent if os.path.isdir(parent) else None))
        self._ended = context.accumulator([], Joined())
        self._earlier = 0
        self.place = BoardPlace(str(self._directory), self._ended)
        self.failure = ""

    def begin_job(self) -> None:
        """Count from zero again."""
        self._earlier = len(self._ended.value)
        for path in self._directory.iterdir():
            path.unlink(missing_ok=True)

    def totals(self) -> ReplayCounts:
        """Return the sum over all tasks; of each, the last attempt counts."""
        reports: list[TaskReport] = self._ended.value[self._earlier :]
        for path in self._directory.glob("*.report"):
            with suppress(OSError, ValueError, TypeError):
                reports.append(TaskReport(*orjson.loads(path.read_bytes())))
        reports.sort(key=lambda report: report.attempt)
        found = ReplayCounts()
        for last in {(report.role, report.task): report for report in reports}.values():
            found.add(ReplayCounts(**last.counts))
            self.failure = self.failure or last.failure
        return found

    def stop(self) -> None:
        """Ask all tasks to end."""
        with suppress(OSError):
            (self._directory / _STOP).touch()

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


class BoardPlace(NamedTuple):
    """The board as executors use it."""

    directory: str
    ended: Any = None


class TaskLine:
    """A task's side. Its worker calls `look` often, and waits with `rest`; both raise Stopped."""

    def __init__(
        self,
        place: BoardPlace | None,
        role: Literal["read", "send"],
        task: int,
        attempt: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.task = task
        self.counts = ReplayCounts()
        self._clock = clock
        self._head = (role, task, attempt)
        self._ended = place.ended if place is not None else None
        # None also if executors do not see the directory.
        self._directory = Path(place.directory) if place is not None and os.path.isdir(place.directory) else None
        self._enough = f"enough-{task}"
        self._stops = (_STOP, self._enough) if role == "read" else (_STOP,)
        self._is_stopped = False
        self._reported_s = 0.0

    def look(self) -> None:
        now_s = self._clock()
        if self._directory is not None and now_s - self._reported_s >= REPORT_INTERVAL_S:
            self._reported_s = now_s
            self._write("")
            self._is_stopped = self._is_stopped or any((self._directory / name).exists() for name in self._stops)
        if self._is_stopped:
            raise Stopped("stopped")

    def rest(self, seconds: float) -> None:
        """Wait, but not longer than until the next report."""
        self.look()
        time.sleep(min(seconds, REPORT_INTERVAL_S))
        self.look()

    def enough(self) -> None:
        """Ask the reader of this task to stop: its sender needs no more."""
        if self._directory is not None:
            with suppress(OSError):
                (self._directory / self._enough).touch()

    def end(self, failure: str = "") -> None:
        """Write the last counts. After a failure, the driver ends the other tasks."""
        report = self._write(failure)
        if self._ended is not None:
            self._ended.add([report])

    def _write(self, failure: str) -> TaskReport:
        report = TaskReport(*self._head, asdict(self.counts), failure)
        if self._directory is not None:
            path = self._directory / "-".join(map(str, self._head))
            with suppress(OSError):
                path.with_suffix(".new").write_bytes(orjson.dumps([*report]))
                path.with_suffix(".new").replace(path.with_suffix(".report"))
        return report
