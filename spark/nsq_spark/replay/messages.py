"""The messages of a job as a table of Spark: read, selected, and in the order in which they are sent.

    archive → where → [dedupe] → [order by time, a topic in one task]

A row has the columns of SENDING. `slice` names the part of a file that it was read from. With `dedupe`, the column `part`
names one of the parts that it shuffles into. The messages of a part, of a file or of a shuffle, are in the same order in each
run, so tasks can count slices in it. In an ordered job, the timestamp says how far a topic is sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark import Accumulator
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from nsq_spark.archive.splits import Skipped
from nsq_spark.archive.storage import Storage
from nsq_spark.replay.checkpoint.directory import Checkpoint
from nsq_spark.replay.job import PART, PART_BYTES, SHARED_ID, BadJob
from nsq_spark.schema import COLUMNS
from nsq_spark.source.archive_table import OwnReader, table_of
from nsq_spark.source.batch_reader import SLICE, partitions_of
from nsq_spark.source.options import ReadOptions

SENDING = ("topic", "timestamp_ns", "body", SLICE)
# True for one of the messages with the same id and different bodies.
_IS_SHARED = "count(*) OVER (PARTITION BY topic, key) > 1 AND row_number() OVER (PARTITION BY topic, key ORDER BY body) = 1"
# By the column of --dedupe: the key of a message, the column by which a topic is shuffled, and SHARED_ID.
_BY_ID = ("coalesce(id, concat(file, ':', position))", "key", _IS_SHARED)
_BY_BODY = ("''", "body", "false")
_COPIES = ("topic", "key", "body")
_NAMES = [column.name for column in COLUMNS]
_ORDER = ("timestamp_ns", "id")
_TEXT = "CAST(body AS STRING)"
_JSON = re.compile(r"\bjson\b", re.IGNORECASE)
_NOTHING = StructType([]).json()
_PARTS_BYTES = 64 * 1024 * 1024


class OrderedPart(NamedTuple):
    """The messages of an ordered job that the task `number` sends: how many, the first time, and how many have no time."""

    number: int
    messages: int
    first_ns: int
    without_time: int


@dataclass(eq=False, repr=False)
class JobMessages:
    """The messages of one job. Methods raise ArchiveError, and BadJob for a predicate that Spark refuses.

    json_schema  types of the fields of JSON bodies, once `selected` has found them
    _slots       the number of tasks at the same time
    """

    _spark: SparkSession
    _checkpoint: Checkpoint
    _slots: int
    _damage: Accumulator[dict[str, Skipped]]

    def __post_init__(self) -> None:
        job = self._checkpoint.job
        self._selection = job.selection
        self._is_ordered = job.is_ordered
        self._files = self._checkpoint.files
        self._done_parts = frozenset(self._checkpoint.earlier.parts)
        self._predicate = job.selection.where or ""
        self._reads_json = _JSON.search(self._predicate) is not None
        self.json_schema = job.selection.json_schema or ""
        self._read = ReadOptions(
            job.paths, Storage(job.storage), job.hints, job.selection.requested, job.skip_damaged, PART_BYTES
        )

    @property
    def sending(self) -> tuple[str, ...]:
        """The columns of rows that tasks send."""
        if self._selection.dedupe:
            return (*SENDING, PART, SHARED_ID)
        return SENDING

    @property
    def infers_types(self) -> bool:
        """True if Spark infers the types of JSON fields, because the user has not given them."""
        return self._reads_json and not self._selection.json_schema

    @property
    def is_fused(self) -> bool:
        """True if a task reads and sends in one Python process: Spark SQL neither chooses nor sorts messages."""
        return not (self._predicate or self._selection.dedupe or self._is_ordered)

    def own_reader(self, columns: Sequence[str] = SENDING) -> OwnReader:
        """Return what reads the files in Python, in the order of files; all in one task if there is a limit."""
        partitions = partitions_of(self._files, self._read, columns, self._done_parts)
        if self._selection.limit and partitions:
            splits = sorted(
                (split for one in partitions for split in one.splits), key=lambda split: split.index
            )
            partitions = [replace(partitions[0], splits=splits)]
        return OwnReader(partitions, self._damage)

    def selected(self, extra: Sequence[str] = ()) -> DataFrame:
        """Return the rows that match, with the columns of SENDING and some more."""
        selection = self._selection
        requested = {*SENDING, *extra}
        if self._is_ordered:
            requested.update(_ORDER)
        requested.update(name for name in _NAMES if re.search(rf"\b{name}\b", self._predicate, re.IGNORECASE))
        if self._reads_json:
            self.json_schema = self.json_schema or self._inferred_schema()
        if selection.dedupe:
            requested |= {"id", "file", "position"} if selection.dedupe == "id" else {"id"}
        columns = [*filter(requested.__contains__, _NAMES), SLICE]
        # Spark's readers take files in another order, and do not report damage.
        own = None
        if selection.limit or self._read.skip_damaged:
            own = self.own_reader(columns)
        rows = table_of(self._spark, self._files, self._read, columns, self._done_parts, own, self._where)
        if selection.dedupe:
            return self._deduplicated(rows)
        return rows

    def _inferred_schema(self) -> str:
        """Return the types of all fields in bodies that are JSON, as Spark infers them."""
        bodies = table_of(self._spark, self._files, self._read, ["body"])
        return self._spark.read.json(bodies.selectExpr(_TEXT)).schema.json()

    def _where(self, rows: DataFrame) -> DataFrame:
        if not self._predicate:
            return rows
        if self._reads_json and self.json_schema == _NOTHING:
            return rows.where(F.lit(False))
        found = rows
        try:
            if self._reads_json:
                found = rows.withColumn("json", F.from_json(F.expr(_TEXT), self.json_schema))
            return found.where(F.expr(f"({self._predicate}\n)")).select(*rows.columns)
        except AnalysisException as error:
            reason = str(error).strip().partition("\n")[0]
            hint = ""
            if found is not rows:
                hint = "; --json-schema gives the types of fields"
            raise BadJob(f"the predicate {self._predicate!r} cannot be used: {reason}{hint}") from error

    def _deduplicated(self, rows: DataFrame) -> DataFrame:
        """Keep the first of all copies. They are in the part with the same number, also when a replay goes on.

        Messages with the same id and different bodies are no copies: two nsqds with the same node id have made them.
        """
        key, within, is_shared = _BY_ID if self._selection.dedupe == "id" else _BY_BODY
        count = self._checkpoint.size_bytes // _PARTS_BYTES + 1
        first = F.min(F.struct("timestamp_ns", "id", SLICE)).alias("first")
        copies = (
            rows.withColumn("key", F.expr(key))
            .repartition(count, "topic", within)
            .groupBy(*_COPIES)
            .agg(first)
        )
        # As Spark's hash partitioning numbers them.
        name = F.expr(f"concat('part ', pmod(hash(topic, {within}), {count}), ' of {count}')")
        shared_id = F.expr(is_shared).alias(SHARED_ID)
        parted = copies.select(*_COPIES, "first.*", name.alias(PART), shared_id)
        if self._done_parts:
            is_done = F.col(PART).isin(list(self._done_parts))
            parted = parted.where(~is_done)
        return parted.sortWithinPartitions(*_COPIES).drop("key")

    # ---- in order of time

    def ordered(self) -> tuple[DataFrame, list[OrderedPart]]:
        """Return the rows in the order of their times, each topic in one partition; and what each partition has.

        Raises BadJob if a message has no time.
        """
        limit = self._selection.limit
        rows = self.selected().select("id", *self.sending)
        if limit:
            rows = rows.orderBy(*_ORDER).limit(limit)
        marks = self._checkpoint.earlier.marks
        if marks:
            by_topic = F.create_map(*(F.lit(one) for pair in marks.items() for one in pair))
            mark = by_topic[F.col("topic")]
            is_due = F.col("timestamp_ns") >= mark
            rows = rows.where(F.coalesce(is_due, F.lit(True)))
        # As Spark's hash partitioning numbers them.
        number = "0" if limit else f"pmod(hash(topic), {self._slots})"
        counts = map(F.expr, ("count(*)", "min(timestamp_ns)", "count_if(timestamp_ns IS NULL)"))
        by_part = rows.groupBy(F.expr(number).alias("part"))
        parts = [OrderedPart(*found) for found in by_part.agg(*counts).collect()]
        for part in parts:
            if part.without_time:
                raise BadJob(
                    f"{part.without_time:,} messages keep no times, so they cannot be sent in order of time"
                )
        if not limit:
            rows = rows.repartition(self._slots, "topic").sortWithinPartitions(*_ORDER)
        return rows.select(*self.sending), parts
