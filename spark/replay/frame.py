"""The way through Spark SQL: for a predicate, and for finding messages that are there twice.

    tasks → mapInArrow(read) → where → [shuffle by key, the first of each] → mapInArrow(send) → results

Reader and sender of a task are two Python processes with the JVM between them. Only the columns that are needed make
the journey. A reader's last row, with a file number below 0, has its TaskResult for a body, and passes all filters.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark.replay import predicate
from spark.replay.engine import Engine
from spark.replay.errors import BadJob, BadPredicate
from spark.replay.job import Selection
from spark.replay.json_types import Typed, typed
from spark.replay.marks import Mark
from spark.replay.pace import PaceOfTask
from spark.replay.planning import Plan, Task, packed, sent_up_to
from spark.replay.results import TaskResult
from spark.replay.rows import FILE_NUMBER, PART, SENDING, ddl_of
from spark.replay.sieve import sieve_of
from spark.replay.sinks import MakeSink
from spark.replay.stages import Reads, Sends
from spark.replay.work import Setup
from spark.schema import COLUMNS

_RESULT = "result BINARY"
# What is JSON for Spark SQL is JSON for `filter`.
JSON_OPTIONS = {"allowSingleQuotes": "false"}
_KEYS = {"id": "coalesce(id, concat(file_number, ':', position))", "body": "body"}


class Frame:
    """Jobs of one plan."""

    def __init__(self, spark: Any, plan: Plan, engine: Engine, setup: Setup) -> None:
        self._session = _own_session(spark if isinstance(spark, SparkSession) else SparkSession(spark))
        self._plan = plan
        self._engine = engine
        self._setup = setup

    # ---- without a shuffle: a task is a partition from its beginning to its end

    def run(self, tasks: Sequence[Task], make_sink: MakeSink) -> list[TaskResult]:
        columns = make_sink.columns if self._plan.is_ordered else (*make_sink.columns, PART)
        chosen = self._chosen(tasks, columns).select(*columns)
        return self._collect(chosen.mapInArrow(Sends(self._setup, make_sink, tuple(tasks)), _RESULT))

    def _chosen(self, tasks: Sequence[Task], columns: Sequence[str]) -> DataFrame:
        """What matches. Raises BadPredicate."""
        selection = self._plan.job.selection
        names = self._names(selection.where, columns)
        numbers = self._session.range(0, len(tasks), 1, len(tasks))
        sieve = sieve_of(selection.where, selection.json_schema)
        rows = numbers.mapInArrow(Reads(self._setup, names, tuple(tasks), sieve), ddl_of(names))
        return rows if selection.where is None else _where(rows, selection)

    def _names(self, where: str | None, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns that are sent, or named by the predicate."""
        named = predicate.names_in(where) if where is not None else set()
        wanted = {*columns, *SENDING, *named}
        if self._plan.job.selection.dedupe == "id":
            wanted.add("id")
        numbers = (FILE_NUMBER, PART) if PART in wanted else (FILE_NUMBER,)
        return (*numbers, *(column.name for column in COLUMNS if column.name in wanted))

    def _collect(self, frame: DataFrame) -> list[TaskResult]:
        rows = self._engine.run(frame.collect)
        results: list[TaskResult] = [pickle.loads(row[0]) for row in rows]
        return results

    # ---- with one: the first of those that are there twice, and then in an order that is always the same

    def cut(self, limit: int) -> Mark | None:
        keys = self._order()
        frame = self._first_of_each(SENDING).where(F.col(FILE_NUMBER) >= 0).select(*keys)
        rows = self._engine.run(frame.orderBy(*keys).limit(limit).agg(F.count("*"), F.max(F.struct(*keys))).collect)
        count, last = rows[0]
        if count < limit:
            return None
        return (*last,) if self._plan.is_ordered else (0, *last)

    def run_shuffled(self, setup: Setup, make_sink: MakeSink) -> list[TaskResult]:
        """In `shuffle_parts` tasks; or, in order of time, with each topic in one task."""
        plan, self._setup = self._plan, setup
        frame = self._first_of_each(make_sink.columns)
        if setup.cut is not None:
            frame = frame.where((F.col(FILE_NUMBER) < 0) | _up_to(setup.cut, self._order()))
        count, parts = plan.shuffle_parts, plan.shuffle_parts
        pace = PaceOfTask(plan.job.pacing.rate and plan.job.pacing.rate / min(count, plan.slots))
        if plan.is_ordered:
            if not hasattr(frame, "repartitionById"):
                raise BadJob("--dedupe in order of time needs DataFrame.repartitionById of PySpark: update pyspark")
            count, parts = plan.slots, 0
            pace = replace(pace, speed=plan.job.pacing.speed, origin_ns=self._origin_ns(), start_s=time.time())
            frame = frame.repartitionById(count, F.expr(f"CAST(pmod(xxhash64(topic), {count}) AS INT)"))
        frame = frame.sortWithinPartitions(*self._order()).select(*make_sink.columns)
        tasks = tuple(Task(number, pace=pace) for number in range(count))
        return self._collect(frame.mapInArrow(Sends(setup, make_sink, tasks, parts), _RESULT))

    def _origin_ns(self) -> int:
        """The time of the archive that the schedule begins with: that of the first message which is not sent yet."""
        if self._plan.job.pacing.speed is None:
            return 0
        marks = [sent_up_to(self._plan, topic) for topic in self._plan.done]
        if marks:
            return min(mark[0] for mark in marks if mark is not None)
        rows = self._engine.run(self._first_of_each(SENDING).agg(F.min("timestamp_ns")).collect)
        return int(rows[0][0] or 0)

    def _order(self) -> tuple[str, ...]:
        return ("timestamp_ns", FILE_NUMBER, "position") if self._plan.is_ordered else (FILE_NUMBER, "position")

    def _first_of_each(self, columns: Sequence[str]) -> DataFrame:
        plan = self._plan
        tasks = packed(plan.parts, 4 * plan.slots)
        rows = self._chosen(tasks, columns)
        keys = [F.col("topic"), F.expr(_KEYS[plan.job.selection.dedupe])]
        numbered = rows.repartition(plan.shuffle_parts, *keys).withColumn(
            "copy", F.row_number().over(Window.partitionBy(*keys).orderBy(FILE_NUMBER, "position"))
        )
        return numbered.where((F.col("copy") == 1) | (F.col(FILE_NUMBER) < 0)).drop("copy")


def _own_session(session: SparkSession) -> SparkSession:
    """Return one with other settings. Spark would parse a body once for each field that a predicate names; for all of
    them together it does so once: half the processor time for three fields. And a cast that fails gives null: one body
    must not end a replay.
    """
    own = session.newSession()
    own.conf.set("spark.sql.optimizer.enableJsonExpressionOptimization", "false")
    own.conf.set("spark.sql.ansi.enabled", "false")
    return own


def _where(rows: DataFrame, selection: Selection) -> DataFrame:
    """Rows for which the predicate is true, and the last rows of readers. Raises BadPredicate."""
    where = selection.where
    assert where is not None
    try:
        F.expr(f"({where}\n)")  # as it was written, so that Spark's message is about that
        found = typed(where) if selection.json_schema is None else Typed(where, {predicate.JSON: selection.json_schema})
        text = F.col("body").cast("string")
        options = JSON_OPTIONS if selection.json_schema is None else {}
        rows = rows.withColumns({name: F.from_json(text, schema, options) for name, schema in found.columns.items()})
        wanted = F.expr(f"({found.where}\n)")
        rows.where(wanted)  # alone, so that what Spark says of it is about nothing else
        return rows.where(wanted | (F.col(FILE_NUMBER) < 0))
    except PySparkException as error:
        raise BadPredicate(f"the predicate {where!r} cannot be used: {predicate.reason(str(error))}") from error


def _up_to(cut: Mark, keys: Sequence[str]) -> Column:
    """Whether a row's mark is not behind the cut."""
    values = [F.lit(value).cast("bigint") for value in cut[-len(keys) :]]
    return F.struct(*(F.col(key).cast("bigint") for key in keys)) <= F.struct(*values)
