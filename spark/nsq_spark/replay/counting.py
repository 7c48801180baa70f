"""Counts instead of sending: to find where a limit is reached."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from nsq_spark.replay.blocks import Block
from nsq_spark.replay.marks import Mark, Marks
from nsq_spark.replay.order import keys_of
from nsq_spark.replay.planning import Part, Task
from nsq_spark.replay.progress import TaskLine
from nsq_spark.replay.results import TaskResult
from nsq_spark.replay.rows import SENDING
from nsq_spark.replay.sinks import Sink
from nsq_spark.replay.work import Attempt, Setup


@dataclass(slots=True)
class PartCount:
    """Of the messages of one part; `mark` is that of the one that reaches the limit."""

    part: int
    count: int = 0
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class Counting:
    """Makes the sinks that count the messages of each part, or of a whole ordered task, up to a limit."""

    limit: int
    columns: tuple[str, ...] = SENDING

    def __call__(self, setup: Setup, task: Task, attempt: Attempt, line: TaskLine) -> Sink:
        return CountSink(self.limit, line)


class CountSink(Sink):
    def __init__(self, limit: int, line: TaskLine) -> None:
        self._limit = limit
        self._line = line
        self._found: list[PartCount] = []

    def begin(self, part: Part) -> None:
        self._found.append(PartCount(part.split.index))

    def take(self, block: Block, lane: str) -> None:
        self._count(block.marks)

    def take_rows(self, rows: pa.RecordBatch) -> None:
        if not self._found:
            self._found.append(PartCount(-1))
        self._count(Marks(*keys_of(rows)))

    def _count(self, marks: Marks) -> None:
        found = self._found[-1]
        wanted = self._limit - found.count
        if not self.is_full and wanted <= len(marks.positions):
            found.mark = marks.at(wanted - 1)
        found.count += len(marks.positions)

    @property
    def is_full(self) -> bool:
        return self._found[-1].mark is not None

    def idle(self) -> None:
        self._line.look()

    def report(self, result: TaskResult) -> None:
        result.payload = self._found
