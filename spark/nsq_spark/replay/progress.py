"""ReplayCounts of tasks while they run, in files of a directory that driver and executors share. It needs no port.

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
_STOP, _JOB = "stop", "job"


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
    """The counts of one try of a task, and its error. `job` is the number of the Spark job; 0 if it is not known."""

    job: int
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
        self._job = self._earlier = 0
        self.place = BoardPlace(str(self._directory), self._ended)
        self.failure = ""

    def begin_job(self) -> None:
        """Count from zero again."""
        self._job += 1
        self._earlier = len(self._ended.value)
        _replace(self._directory / _JOB, str(self._job).encode())

    def totals(self) -> ReplayCounts:
        """Return the sum over all tasks; of each, the last try counts."""
        last: dict[tuple[str, int], TaskReport] = {}
        for report in (*self._ended.value[self._earlier :], *self._written()):
            key = report.role, report.task
            if report.job in (0, self._job) and (key not in last or report.attempt >= last[key].attempt):
                last[key] = report
                self.failure = self.failure or report.failure
        found = ReplayCounts()
        for report in last.values():
            found.add(ReplayCounts(**report.counts))
        return found

    def _written(self) -> list[TaskReport]:
        found = []
        for path in self._directory.glob("*.report"):
            with suppress(OSError, ValueError, TypeError):
                found.append(TaskReport(*orjson.loads(path.read_bytes())))
        return found

    def stop(self) -> None:
        """Ask all tasks to end."""
        with suppress(OSError):
            (self._directory / _STOP).touch()

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class BoardPlace:
    """The board as executors use it."""

    directory: str
    ended: Any = None


class TaskLine:
    """A task's side. Its worker calls `look` often, and waits with `rest`; both raise Stopped.

    A task through Spark SQL has two workers: one reads, the other one sends.
    """

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
        self._place = place
        self._directory: Path | None = None if place is None else Path(place.directory)
        job = 0
        if self._directory is not None:
            try:
                job = int((self._directory / _JOB).read_bytes())
            except (OSError, ValueError):  # executors do not see it
                self._directory = None
        self._head = (job, role, task, attempt)
        self._enough = f"enough-{job}-{task}"
        self._is_stopped = False
        self._reported_s = 0.0

    def look(self) -> None:
        now_s = self._clock()
        if now_s - self._reported_s >= REPORT_INTERVAL_S:
            self._reported_s = now_s
            self._write("")
            self._is_stopped = self._is_stopped or self._has_file(_STOP)
            self._is_stopped = self._is_stopped or (self._head[1] == "read" and self._has_file(self._enough))
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
        if self._place is not None and self._place.ended is not None:
            self._place.ended.add([report])

    def _has_file(self, name: str) -> bool:
        return self._directory is not None and (self._directory / name).exists()

    def _write(self, failure: str) -> TaskReport:
        report = TaskReport(*self._head, asdict(self.counts), failure)
        if self._directory is not None:
            name = "-".join(map(str, self._head))
            with suppress(OSError):
                _replace(self._directory / f"{name}.report", orjson.dumps([*report]))
        return report


def _replace(path: Path, data: bytes) -> None:
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_bytes(data)
    new.replace(path)
