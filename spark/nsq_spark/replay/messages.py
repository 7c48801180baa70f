"""The messages of a job as a table of Spark: read, selected, and in the order in which they are sent.

    archive → where → [dedupe] → [order by time, a topic in one task]

A row has the columns of SENDING. `slice` names the part of a file that it was read from. With `dedupe`, the column `part`
names one of the parts that it shuffles into. The messages of a part, of a file or of a shuffle, are in the same order in each
run, so tasks can count slices in it. In an ordered job, the timestamp says how far a topic is sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark import Accumulator
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from nsq_spark.archive.splits import FileInfo, Skipped
from nsq_spark.archive.storage import Storage
from nsq_spark.replay.job import PART, PART_BYTES, SHARED_ID, BadJob, Job
from nsq_spark.schema import COLUMNS
from nsq_spark.source.archive_table import OwnReader, table_of
from nsq_spark.source.batch_reader import SLICE, partitions_of
from nsq_spark.source.options import ReadOptions

SENDING = ("topic", "timestamp_ns", "body", SLICE)
# True for one of the messages with the same id and different bodies.
_IS_SHARED = "count(*) OVER (PARTITION BY topic, key) > 1 AND row_number() OVER (PARTITION BY topic, key ORDER BY body) = 1"
_ORDER = ("timestamp_ns", "id")
_TEXT = "CAST(body AS STRING)"
_JSON = re.compile(r"\bjson\b", re.IGNORECASE)
_NOTHING = StructType([]).json()
_PARTS_BYTES = 64 * 1024 * 1024


class Lane(NamedTuple):
    """The messages of an ordered job that one task sends: their number, and the first time."""

    number: int
    messages: int
    first_ns: int


@dataclass(eq=False, repr=False)
class JobMessages:
    """The messages of one job. Methods raise ArchiveError, and BadJob for a predicate that Spark refuses.

    json_schema  types of the fields of JSON bodies, once `selected` has found them
    _done_parts  names of parts that are sent; `_marks`: times up to which topics are
    _slots       the number of tasks at the same time
    """

    _spark: SparkSession
    _job: Job
    _files: Sequence[FileInfo]
    _done_parts: frozenset[str]
    _marks: Mapping[str, int]
    _slots: int
    _damage: Accumulator[dict[str, Skipped]]

    def __post_init__(self) -> None:
        job, selection = self._job, self._job.selection
        self.json_schema = selection.json_schema
        self._read = ReadOptions(job.paths, Storage(job.storage), job.hints, selection.wanted, job.skip_damaged, PART_BYTES)

    @property
    def sending(self) -> tuple[str, ...]:
        """The columns of rows that tasks send."""
        return (*SENDING, PART, SHARED_ID) if self._job.selection.dedupe else SENDING

    @property
    def infers_types(self) -> bool:
        """True if Spark infers the types of JSON fields, because the user has not given them."""
        selection = self._job.selection
        return bool(selection.where and _JSON.search(selection.where)) and selection.json_schema is None

    @property
    def is_fused(self) -> bool:
        """True if a task reads and sends in one Python process: Spark SQL neither chooses nor sorts messages."""
        return not (self._job.selection.where or self._job.selection.dedupe or self._job.is_ordered)

    def own_reader(self, columns: Sequence[str] = SENDING) -> OwnReader:
        """Return what reads the files in Python, in the order of files; all in one task if there is a limit."""
        partitions = partitions_of(self._files, self._read, columns, self._done_parts)
        if self._job.selection.limit is not None and len(partitions) > 1:
            splits = sorted((split for one in partitions for split in one.splits), key=lambda split: split.index)
            partitions = [replace(partitions[0], splits=splits)]
        return OwnReader(partitions, self._damage)

    def selected(self, extra: Sequence[str] = ()) -> DataFrame:
        """Return the rows that match, with the columns of SENDING and some more."""
        selection = self._job.selection
        wanted = {*SENDING, *extra}
        if self._job.is_ordered:
            wanted.update(_ORDER)
        if selection.where:
            wanted |= {column.name for column in COLUMNS if re.search(rf"\b{column.name}\b", selection.where, re.IGNORECASE)}
            if _JSON.search(selection.where):
                self.json_schema = self.json_schema or self._inferred_schema()
        if selection.dedupe:
            wanted |= {"id", "file", "position"} if selection.dedupe == "id" else {"id"}
        columns = [*(column.name for column in COLUMNS if column.name in wanted), SLICE]
        # Spark's readers take files in another order, and do not report damage.
        own = self.own_reader(columns) if selection.limit is not None or self._job.skip_damaged else None
        rows = table_of(self._spark, self._files, self._read, columns, self._done_parts, own, self._where)
        return self._deduplicated(rows) if selection.dedupe else rows

    def _inferred_schema(self) -> str:
        """Return the types of all fields in bodies that are JSON, as Spark infers them."""
        bodies = table_of(self._spark, self._files, self._read, ["body"])
        return self._spark.read.json(bodies.selectExpr(_TEXT)).schema.json()

    def _where(self, rows: DataFrame) -> DataFrame:
        predicate = self._job.selection.where
        if not predicate:
            return rows
        found = rows
        try:
            if self.json_schema is not None and _JSON.search(predicate):
                if self.json_schema == _NOTHING:
                    return rows.where(F.lit(False))
                found = rows.withColumn("json", F.from_json(F.expr(_TEXT), self.json_schema))
            return found.where(F.expr(f"({predicate}\n)")).select(*rows.columns)
        except AnalysisException as error:
            reason = str(error).strip().partition("\n")[0]
            hint = "; --json-schema gives the types of fields" if found is not rows else ""
            raise BadJob(f"the predicate {predicate!r} cannot be used: {reason}{hint}") from error

    def _deduplicated(self, rows: DataFrame) -> DataFrame:
        """Keep the first of all copies. They are in the part with the same number, also when a replay goes on.

        Messages with the same id and different bodies are no copies: two nsqds with the same node id have made them.
        """
        is_by_id = self._job.selection.dedupe == "id"
        key = F.expr("coalesce(id, concat(file, ':', position))") if is_by_id else F.lit("")
        place = ["topic", "key"] if is_by_id else ["topic", "body"]
        count = max(1, -(-sum(info.size_bytes for info in self._files) // _PARTS_BYTES))
        first = F.min(F.struct("timestamp_ns", "id", SLICE)).alias("first")
        copies = rows.withColumn("key", key).repartition(count, *place).groupBy("topic", "key", "body").agg(first)
        # As Spark's hash partitioning numbers them.
        name = F.expr(f"concat('part ', pmod(hash({', '.join(place)}), {count}), ' of {count}')")
        is_shared = F.expr(_IS_SHARED if is_by_id else "false")
        parted = copies.select("topic", "key", "body", "first.*", name.alias(PART), is_shared.alias(SHARED_ID))
        if self._done_parts:
            parted = parted.where(~F.col(PART).isin(list(self._done_parts)))
        return parted.sortWithinPartitions("topic", "key", "body").drop("key")

    # ---- in order of time

    def ordered(self) -> tuple[DataFrame, list[Lane]]:
        """Return the rows in the order of their times, each topic in one partition; and what each partition has.

        Raises BadJob if a message has no time.
        """
        limit = self._job.selection.limit
        rows = self.selected().select("id", *self.sending)
        if limit is not None:
            rows = rows.orderBy(*_ORDER).limit(limit)
        if self._marks:
            marks = F.create_map(*(F.lit(one) for pair in self._marks.items() for one in pair))
            rows = rows.where(F.coalesce(F.col("timestamp_ns") >= marks[F.col("topic")], F.lit(True)))
        # As Spark's hash partitioning numbers them.
        number = F.lit(0) if limit is not None else F.expr(f"pmod(hash(topic), {self._slots})")
        counts = (F.count("*"), F.min("timestamp_ns"), F.count_if(F.col("timestamp_ns").isNull()))
        lanes = []
        for part, count, first_ns, without in rows.groupBy(number.alias("part")).agg(*counts).collect():
            if without:
                raise BadJob(f"{without:,} messages keep no times, so they cannot be sent in order of time")
            lanes.append(Lane(part, count, first_ns))
        if limit is None:
            rows = rows.repartition(self._slots, "topic")
            rows = rows.sortWithinPartitions(*_ORDER)
        return rows.select(*self.sending), lanes
