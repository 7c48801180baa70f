"""The two halves of a task that goes through Spark SQL: one Python process reads, another one sends."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.damage import Damage
from nsq_spark.archive.errors import ArchiveError
from nsq_spark.replay.engine import this_attempt
from nsq_spark.replay.errors import ReplayError, Stopped
from nsq_spark.replay.marks import BY_FILE
from nsq_spark.replay.planning import Part, Task
from nsq_spark.replay.progress import TaskLine
from nsq_spark.replay.reading import Reader
from nsq_spark.replay.results import TaskResult
from nsq_spark.replay.rows import FILE_NUMBER, PART, by_file, rows_of, schema_of
from nsq_spark.replay.sieve import Sieve
from nsq_spark.replay.sinks import MakeSink, Sink
from nsq_spark.replay.task import ended, hand_on, ordered_rows
from nsq_spark.replay.work import Setup

_NO_FILE = -1
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Reads:
    """Rows of the tasks with the numbers that come; then one row that tells how it went, with no file number."""

    setup: Setup
    names: tuple[str, ...]
    tasks: tuple[Task, ...]
    sieve: Sieve

    def __call__(self, batches: Batches) -> Batches:
        attempt = this_attempt()
        line = TaskLine(self.setup.line, "read", attempt.task, attempt.number)
        reader = Reader(self.setup, line.counts, line.look)
        result = TaskResult(attempt.task, line.counts, damage=reader.damage.counts)
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for rows in self._rows(reader, self.tasks[number]):
                        left = self.sieve.left(rows)
                        if left.num_rows:
                            yield left
        except Stopped:
            result.is_stopped = True
        except (ReplayError, ArchiveError) as error:
            result.error = error
        line.end(str(result.error or ""))
        yield self._last_row(result)

    def _rows(self, reader: Reader, task: Task) -> Batches:
        if task.sources:
            yield from ordered_rows(reader, task, self.setup, self.names)
            return
        for part in task.parts:
            for block in reader.by_file(part):
                yield rows_of(block, self.names, part.split.index)

    def _last_row(self, result: TaskResult) -> pa.RecordBatch:
        values = {FILE_NUMBER: _NO_FILE, "body": pickle.dumps(result)}
        schema = schema_of(self.names)
        return pa.RecordBatch.from_pylist([{name: values.get(name) for name in self.names}], schema=schema)


@dataclass(frozen=True, slots=True)
class Sends:
    """Hands rows on to the sink of the task with the number of the partition, and gives its result, pickled.

    shuffled_into  where rows were shuffled, and are in the order of the files, into how many tasks
    """

    setup: Setup
    make_sink: MakeSink
    tasks: tuple[Task, ...]
    shuffled_into: int = 0

    def __call__(self, batches: Batches) -> Batches:
        attempt = this_attempt()
        task = self.tasks[attempt.task]
        line = TaskLine(self.setup.line, "send", task.number, attempt.number)
        told = _Told()
        work = partial(self._work, told.without_last_rows(batches), task, told)
        result = ended(line, told.damage, partial(self.make_sink, self.setup, task, attempt, line), work)
        told.add_to(result)
        yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})

    def _work(self, batches: Batches, task: Task, told: _Told, sink: Sink) -> None:
        if self.shuffled_into:
            self._shuffled(batches, task, sink)
        elif task.parts and not task.sources:
            parts = _Parts(task.parts, sink)
            for rows in batches:
                sink.idle()
                parts.take(rows)
            told.check()
            parts.finish()
        else:
            hand_on(batches, sink)
        told.check()

    def _shuffled(self, batches: Batches, task: Task, sink: Sink) -> None:
        lane = f"part {task.number} of {self.shuffled_into}"
        for rows in batches:
            sink.idle()
            for _, block in by_file(rows):
                sink.take(block, lane)


class _Told:
    """What readers say in their last rows."""

    def __init__(self) -> None:
        self.damage = Damage("skip")
        self._results: list[TaskResult] = []

    def without_last_rows(self, batches: Batches) -> Batches:
        for rows in batches:
            is_last = pc.less(rows.column(FILE_NUMBER), 0)
            if pc.any(is_last).as_py():
                self._results += map(pickle.loads, rows.filter(is_last).column("body").to_pylist())
                rows = rows.filter(pc.invert(is_last))
            if rows.num_rows:
                yield rows

    def check(self) -> None:
        """Raise what a reader raised."""
        for told in self._results:
            if told.error is not None:
                raise told.error
            if told.is_stopped:
                raise Stopped("stopped")

    def add_to(self, result: TaskResult) -> None:
        for told in self._results:
            result.counts.add(told.counts)
            self.damage.add(told.damage)


class _Parts:
    """Says where parts begin and end: in the order of the task, also those that have no rows."""

    def __init__(self, parts: Sequence[Part], sink: Sink) -> None:
        self._left = deque(parts)
        self._current: Part | None = None
        self._sink = sink

    def take(self, rows: pa.RecordBatch) -> None:
        for number, block in by_file(rows, PART):
            while self._current is None or self._current.split.index != number:
                self._next()
            self._sink.take(block, BY_FILE)

    def finish(self) -> None:
        while self._left:
            self._next()
        if self._current is not None:
            self._sink.end(self._current)

    def _next(self) -> None:
        if self._current is not None:
            self._sink.end(self._current)
        self._current = self._left.popleft()
        self._sink.begin(self._current)
