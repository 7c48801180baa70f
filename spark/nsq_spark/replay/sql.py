"""The way through Spark SQL: for a predicate, and to find messages that are there twice.

    tasks → mapInArrow(read) → where → [shuffle by key, the first of each] → mapInArrow(send) → results

Reader and sender of a task are two Python processes, with the JVM between them. Only the columns that are needed make
the journey. The last row of a reader has a negative file number and its TaskResult as body; it passes all filters.

A plain ordered replay does not come here: 2 M messages of 190 bytes take 5.9 s of processor time in the order that
`ordering` makes, and 32 s through a shuffle. `dropDuplicates` would keep any copy; a resumed job needs the same one.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from nsq_spark.archive.damage import Damage
from nsq_spark.replay import predicate
from nsq_spark.replay.errors import BadPredicate, Stopped
from nsq_spark.replay.filter import needs_spark
from nsq_spark.replay.job import Selection
from nsq_spark.replay.json_types import Typed, typed
from nsq_spark.replay.pace import PaceOfTask
from nsq_spark.replay.planning import Part, Plan, Task, packed
from nsq_spark.replay.positions import FILE_NUMBER, KEYS, PART, SENDING, Block, by_file, by_time, ddl_of, rows_of, schema_of
from nsq_spark.replay.progress import TaskLine
from nsq_spark.replay.reading import Reader
from nsq_spark.replay.task import (
    Sink,
    TaskContext,
    TaskResult,
    errors_in,
    hand_on,
    hand_on_parts,
    ordered_rows,
    this_attempt,
    with_sink,
)
from nsq_spark.schema import COLUMNS

_RESULT = "result BINARY"
# What is JSON for Spark SQL is JSON for `filter`.
JSON_OPTIONS = {"allowSingleQuotes": "false"}
_COPIES = {"id": "coalesce(id, concat(file_number, ':', position))", "body": "body"}
_NO_FILE = -1

Batches = Iterator[pa.RecordBatch]
# Runs an action of Spark, and returns its value.
RunAction = Callable[[Callable[[], Any]], Any]


class SqlReplay:
    """The jobs of one plan that go through Spark SQL. `run` raises JobFailed, Stopped and BadPredicate."""

    def __init__(self, spark: Any, plan: Plan, run: RunAction, context: TaskContext, make_sink: type[Sink]) -> None:
        self._session = _own_session(spark if isinstance(spark, SparkSession) else SparkSession(spark))
        self._plan = plan
        self._run = run
        self._context = context
        self._make_sink = make_sink
        self._keys = KEYS if plan.is_ordered else KEYS[1:]

    def replay(self, tasks: Sequence[Task]) -> list[TaskResult]:
        """Run tasks without a shuffle: each is a partition from its beginning to its end."""
        columns = self._make_sink.columns if self._plan.is_ordered else (*self._make_sink.columns, PART)
        return self._send(self._chosen(tasks, columns).select(*columns), tuple(tasks))

    def replay_shuffled(self) -> list[TaskResult]:
        """Send the first of all copies: in `shuffle_parts` tasks, or by time with each topic in one task."""
        plan, pacing = self._plan, self._plan.job.pacing
        frame = self._first_of_each(self._make_sink.columns)
        if plan.job.selection.limit is not None:
            frame = self._within(frame, plan.job.selection.limit)
        count, parts = plan.shuffle_parts, plan.shuffle_parts
        pace = PaceOfTask(pacing.rate and pacing.rate / min(count, plan.slots))
        if plan.is_ordered:
            count, parts = plan.slots, 0
            pace = replace(pace, speed=pacing.speed, origin_ns=self._origin_ns(), start_s=time.time())
            frame = frame.repartition(count, "topic")
        frame = frame.sortWithinPartitions(*self._keys).select(*self._make_sink.columns)
        return self._send(frame, tuple(Task(number, pace=pace) for number in range(count)), parts)

    def _send(self, frame: DataFrame, tasks: tuple[Task, ...], shuffled_into: int = 0) -> list[TaskResult]:
        send = partial(_send, self._context, self._make_sink, tasks, shuffled_into)
        rows = self._run(frame.mapInArrow(send, _RESULT).collect)
        return [pickle.loads(row[0]) for row in rows]

    def _chosen(self, tasks: Sequence[Task], columns: Sequence[str]) -> DataFrame:
        """Return the rows that match, and the last rows of readers. Raises BadPredicate."""
        selection = self._plan.job.selection
        named = predicate.names_in(selection.where) if selection.where is not None else set()
        wanted = {*columns, *SENDING, *named, *(("id",) if selection.dedupe == "id" else ())}
        numbers = (FILE_NUMBER, PART) if PART in wanted else (FILE_NUMBER,)
        names = (*numbers, *(column.name for column in COLUMNS if column.name in wanted))
        read = partial(_read, self._context, names, tuple(tasks))
        rows = self._session.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, ddl_of(names))
        return _where(rows, selection) if needs_spark(selection.where, selection.json_schema) else rows

    def _first_of_each(self, columns: Sequence[str]) -> DataFrame:
        plan = self._plan
        rows = self._chosen(packed(plan.parts, 4 * plan.slots), columns)
        keys = [F.col("topic"), F.expr(_COPIES[plan.job.selection.dedupe])]
        numbered = rows.repartition(plan.shuffle_parts, *keys).withColumn(
            "copy", F.row_number().over(Window.partitionBy(*keys).orderBy(FILE_NUMBER, "position"))
        )
        return numbered.where((F.col("copy") == 1) | (F.col(FILE_NUMBER) < 0)).drop("copy")

    def _within(self, frame: DataFrame, limit: int) -> DataFrame:
        """Return the first rows, up to the mark that the limit is reached at."""
        mark = F.struct(*(F.col(key).cast("bigint") for key in self._keys))
        first = frame.where(F.col(FILE_NUMBER) >= 0).select(mark.alias("mark")).orderBy("mark").limit(limit)
        count, last = self._run(first.agg(F.count("*"), F.max("mark")).collect)[0]
        if count < limit:
            return frame
        return frame.where((F.col(FILE_NUMBER) < 0) | (mark <= F.struct(*(F.lit(key).cast("bigint") for key in last))))

    def _origin_ns(self) -> int:
        """Return the timestamp that the schedule begins with: that of the first message that is not sent yet."""
        if self._plan.job.pacing.speed is None:
            return 0
        marks = [self._plan.sent_up_to(topic) for topic in self._plan.done]
        if marks:
            return min(mark[0] for mark in marks if mark is not None)
        rows = self._run(self._first_of_each(SENDING).agg(F.min("timestamp_ns")).collect)
        return int(rows[0][0] or 0)


def _own_session(session: SparkSession) -> SparkSession:
    """Return a session with other settings. Spark would parse a body once for each field that a predicate names; with
    these, once for all: half the processor time for three fields. And a cast that fails gives null: one body must not
    end a replay.
    """
    own = session.newSession()
    own.conf.set("spark.sql.optimizer.enableJsonExpressionOptimization", "false")
    own.conf.set("spark.sql.ansi.enabled", "false")
    return own


def _where(rows: DataFrame, selection: Selection) -> DataFrame:
    """Return the rows for which the predicate is true, and the last rows of readers. Raises BadPredicate."""
    where = selection.where
    assert where is not None
    try:
        F.expr(f"({where}\n)")  # as the user wrote it, so that Spark's error is about that
        found = typed(where) if selection.json_schema is None else Typed(where, {predicate.JSON: selection.json_schema})
        text = F.col("body").cast("string")
        options = JSON_OPTIONS if selection.json_schema is None else {}
        rows = rows.withColumns({name: F.from_json(text, schema, options) for name, schema in found.columns.items()})
        wanted = F.expr(f"({found.where}\n)")
        rows.where(wanted)  # alone, so that Spark's error is about nothing else
        return rows.where(wanted | (F.col(FILE_NUMBER) < 0))
    except PySparkException as error:
        raise BadPredicate(f"the predicate {where!r} cannot be used: {predicate.reason(str(error))}") from error


# ---- on executors


def _read(context: TaskContext, names: tuple[str, ...], tasks: tuple[Task, ...], batches: Batches) -> Batches:
    """Yield the rows of the tasks whose numbers come, then the last row."""
    attempt = this_attempt()
    line = TaskLine(context.line, "read", attempt.task, attempt.number)
    reader = Reader(context.job, line.counts, line.look)
    result = TaskResult(attempt.task, line.counts, damage=reader.damage.counts)
    with errors_in(result, line):
        for batch in batches:
            for task in (tasks[number] for number in batch.column(0).to_pylist()):
                if task.sources:
                    yield from ordered_rows(reader, task, context, names)
                for part in () if task.sources else task.parts:
                    yield from (rows_of(block, names, part.split.index) for block in reader.by_file(part))
    values = {FILE_NUMBER: _NO_FILE, "body": pickle.dumps(result)}
    yield pa.RecordBatch.from_pylist([{name: values.get(name) for name in names}], schema=schema_of(names))


def _send(context: TaskContext, make_sink: type[Sink], tasks: tuple[Task, ...], shuffled_into: int, batches: Batches) -> Batches:
    """Give rows to the sink of the task with the number of the partition, and yield its result, pickled.

    shuffled_into  the number of tasks, if rows were shuffled and are in the order of files
    """
    attempt = this_attempt()
    task = tasks[attempt.task]
    line = TaskLine(context.line, "send", task.number, attempt.number)
    damage = Damage("skip")
    readers: list[TaskResult] = []

    def work(sink: Sink) -> None:
        messages = _messages(batches, readers)
        if task.parts and not task.sources:
            hand_on_parts(task.parts, _by_part(messages), sink)
        elif shuffled_into:
            lane = f"part {task.number} of {shuffled_into}"
            hand_on(([(lane, block)] for rows in messages for _, block in by_file(rows)), sink)
        else:
            hand_on(map(by_time, messages), sink)
        for rows in batches:  # the sink is full, and the reader may still be at work
            line.enough()
            _take_results(rows, readers)

    result = with_sink(line, damage, partial(make_sink, context, task, attempt, line), work)
    for found in readers:
        result.counts.add(found.counts)
        damage.add(found.damage)
    yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})


def _messages(batches: Batches, readers: list[TaskResult]) -> Batches:
    """Yield the rows that are messages. Raises the error of a reader in the end."""
    for rows in batches:
        found = _take_results(rows, readers)
        if found.num_rows:
            yield found
    for reader in readers:
        if reader.error is not None:
            raise reader.error
        if reader.is_stopped:
            raise Stopped("stopped")


def _take_results(rows: pa.RecordBatch, readers: list[TaskResult]) -> pa.RecordBatch:
    """Return rows without the last rows of readers, whose results go into `readers`."""
    is_last = pc.less(rows.column(FILE_NUMBER), 0)
    if not pc.any(is_last).as_py():
        return rows
    readers += map(pickle.loads, rows.filter(is_last).column("body").to_pylist())
    return rows.filter(pc.invert(is_last))


def _by_part(messages: Batches) -> Callable[[Part], Iterator[Block]]:
    """Return a function that yields the blocks of a part. Parts come in their order; some have none."""
    groups = groupby((found for rows in messages for found in by_file(rows, PART)), key=itemgetter(0))
    waiting = deque(islice(groups, 1))

    def blocks_of(part: Part) -> Iterator[Block]:
        if waiting and waiting[0][0] == part.split.index:
            _, blocks = waiting.popleft()
            yield from (block for _, block in blocks)
            waiting.extend(islice(groups, 1))

    return blocks_of
