"""What tasks count while they run, in files of a directory that driver and executors share. No port is needed for it.

Spark tells the driver of a task when it ends. So each process that works on a task writes down a few times a second how
far it is; the driver reads that, and asks for an end with a file too. Nothing depends on it: where executors do not see
the directory, an accumulator of Spark brings the figures when tasks end, and Spark cancels the tasks.
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
_Role = Literal["read", "send"]


@dataclass(slots=True)
class Counts:
    """Of one task, or of several. Bytes are of files for `read`, of bodies for `sent`."""

    read: int = 0
    read_bytes: int = 0
    matched: int = 0
    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0

    def add(self, other: Counts) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Report(NamedTuple):
    """What a try of a task has counted, and why it failed. `job` counts the jobs of a replay; 0: not known there."""

    job: int
    role: str
    task: int
    attempt: int
    counts: dict[str, int]
    failure: str = ""


class Board:
    """The driver's side. `totals`, and `failure`, what the first task that failed says, may be asked at any time."""

    def __init__(self, context: SparkContext, parent: str | None = None) -> None:
        """In `parent`, or among the temporary files of Spark: a directory that `close` removes."""
        from pyspark.accumulators import AccumulatorParam

        class Joined(AccumulatorParam[list[Report]]):
            def zero(self, value: list[Report]) -> list[Report]:
                return []

            def addInPlace(self, value1: list[Report], value2: list[Report]) -> list[Report]:
                return value1 + value2

        if parent is None:
            parent = (context.getConf().get("spark.local.dir") or "").partition(",")[0]
        self._directory = Path(tempfile.mkdtemp(prefix="nsq-replay-", dir=parent if os.path.isdir(parent) else None))
        self._ended = context.accumulator([], Joined())
        self._job = self._earlier = 0
        self.place = BoardPlace(str(self._directory), self._ended)
        self.failure = ""

    def begin_job(self) -> None:
        """What was counted before counts no more."""
        self._job += 1
        self._earlier = len(self._ended.value)
        _replace(self._directory / _JOB, str(self._job).encode())

    def totals(self) -> Counts:
        """Of each task its last try."""
        last: dict[tuple[str, int], Report] = {}
        for report in (*self._ended.value[self._earlier :], *self._written()):
            key = report.role, report.task
            if report.job in (0, self._job) and (key not in last or report.attempt >= last[key].attempt):
                last[key] = report
                self.failure = self.failure or report.failure
        found = Counts()
        for report in last.values():
            found.add(Counts(**report.counts))
        return found

    def _written(self) -> list[Report]:
        found = []
        for path in self._directory.glob("*.report"):
            with suppress(OSError, ValueError, TypeError):
                found.append(Report(*orjson.loads(path.read_bytes())))
        return found

    def stop(self) -> None:
        """Tell all tasks to end."""
        with suppress(OSError):
            (self._directory / _STOP).touch()

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class BoardPlace:
    """Where tasks write; for executors."""

    directory: str
    ended: Any = None


class TaskLine:
    """A task's side. Whoever works calls `look` often, and waits with `rest`: both raise Stopped."""

    def __init__(
        self,
        place: BoardPlace | None,
        role: _Role,
        task: int,
        attempt: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.task = task
        self.counts = Counts()
        self.is_stopped = False
        self._clock = clock
        self._place = place
        self._directory: Path | None = None if place is None else Path(place.directory)
        job = 0
        if self._directory is not None:
            try:
                job = int((self._directory / _JOB).read_bytes())
            except (OSError, ValueError):  # not seen from here
                self._directory = None
        self._head = (job, role, task, attempt)
        self._reported_s = 0.0

    def look(self) -> None:
        now_s = self._clock()
        if now_s - self._reported_s >= REPORT_INTERVAL_S:
            self._reported_s = now_s
            self._write("")
            self.is_stopped = self.is_stopped or (self._directory is not None and (self._directory / _STOP).exists())
        if self.is_stopped:
            raise Stopped("stopped")

    def rest(self, seconds: float) -> None:
        """Wait; not longer than until the next report is due."""
        self.look()
        time.sleep(min(seconds, REPORT_INTERVAL_S))
        self.look()

    def end(self, failure: str = "") -> None:
        """What was counted in the end. With a failure, the driver ends the other tasks."""
        report = self._write(failure)
        if self._place is not None and self._place.ended is not None:
            self._place.ended.add([report])

    def _write(self, failure: str) -> Report:
        report = Report(*self._head, asdict(self.counts), failure)
        if self._directory is not None:
            name = "-".join(map(str, self._head))
            with suppress(OSError):
                _replace(self._directory / f"{name}.report", orjson.dumps([*report]))
        return report


def _replace(path: Path, data: bytes) -> None:
    """Whole, or not at all."""
    new = path.with_suffix(f".{os.getpid()}.new")
    new.write_bytes(data)
    new.replace(path)
