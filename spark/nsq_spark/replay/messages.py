"""The messages of a job as a table of Spark: read, selected, and in the order in which they are sent.

    archive → where → [dedupe] → [order by time, a topic in one task]

A row has the columns of SENDING. `slice` names what is sent again as a whole after a kill: a slice of a file, or one of
the parts that `dedupe` shuffles into. In an ordered job it is the topic, and the timestamp says how far that is sent.
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
from nsq_spark.replay.job import SLICE_BYTES, BadJob, Job
from nsq_spark.schema import COLUMNS
from nsq_spark.source.archive_table import OwnReader, table_of
from nsq_spark.source.batch_reader import SLICE, partitions_of
from nsq_spark.source.options import ReadOptions

SENDING = ("topic", "timestamp_ns", "body", SLICE)
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
    _done        names of slices that are sent, and times up to which topics are, by lane
    _slots       the number of tasks at the same time
    """

    _spark: SparkSession
    _job: Job
    _files: Sequence[FileInfo]
    _done: Mapping[str, int | None]
    _slots: int
    _damage: Accumulator[dict[str, Skipped]]

    def __post_init__(self) -> None:
        job, selection = self._job, self._job.selection
        self.json_schema = selection.json_schema
        self._slices = frozenset(lane for lane, mark in self._done.items() if mark is None)
        self._read = ReadOptions(job.paths, Storage(job.storage), job.hints, selection.wanted, job.skip_damaged, SLICE_BYTES)

    @property
    def is_fused(self) -> bool:
        """True if a task reads and sends in one Python process: Spark SQL neither chooses nor sorts messages."""
        return not (self._job.selection.where or self._job.selection.dedupe or self._job.is_ordered)

    def own_reader(self, columns: Sequence[str] = SENDING) -> OwnReader:
        """Return what reads the files in Python, in the order of files; all in one task if there is a limit."""
        partitions = partitions_of(self._files, self._read, columns, self._slices)
        if self._job.selection.limit is not None and len(partitions) > 1:
            splits = sorted((split for one in partitions for split in one.splits), key=lambda split: split.index)
            partitions = [replace(partitions[0], splits=splits)]
        return OwnReader(partitions, self._damage)

    def selected(self, extra: Sequence[str] = ()) -> DataFrame:
        """Return the rows that match, with the columns of SENDING and some more."""
        selection = self._job.selection
        wanted = {*SENDING, *extra, *(_ORDER if self._job.is_ordered else ())}
        if selection.where:
            wanted |= {column.name for column in COLUMNS if re.search(rf"\b{column.name}\b", selection.where, re.IGNORECASE)}
            if _JSON.search(selection.where):
                self.json_schema = self.json_schema or self._inferred_schema()
        if selection.dedupe:
            wanted |= {"id", "file", "position"} if selection.dedupe == "id" else {"id"}
        columns = [*(column.name for column in COLUMNS if column.name in wanted), SLICE]
        # Spark's readers take files in another order, and do not report damage.
        own = self.own_reader(columns) if selection.limit is not None or self._job.skip_damaged else None
        rows = table_of(self._spark, self._files, self._read, columns, self._slices, own, self._where)
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
        """Keep the first of all copies. They are in the part with the same number, also when a replay goes on."""
        is_by_id = self._job.selection.dedupe == "id"
        key = F.expr("coalesce(id, concat(file, ':', position))") if is_by_id else F.col("body")
        count = max(1, -(-sum(info.size_bytes for info in self._files) // _PARTS_BYTES))
        first = F.min(F.struct("timestamp_ns", "id", "body")).alias("first")
        parted = rows.withColumn("key", key).repartition(count, "topic", "key").groupBy("topic", "key").agg(first)
        # As Spark's hash partitioning numbers them.
        name = F.expr(f"concat('part ', pmod(hash(topic, key), {count}), ' of {count}')")
        parted = parted.select("topic", "first.*", name.alias(SLICE))
        return parted.where(~F.col(SLICE).isin(list(self._slices))) if self._slices else parted

    # ---- in order of time

    def ordered(self) -> tuple[DataFrame, list[Lane]]:
        """Return the rows in the order of their times, each topic in one partition; and what each partition has.

        Raises BadJob if a message has no time.
        """
        limit = self._job.selection.limit
        rows = self.selected().select("topic", "timestamp_ns", "id", "body").withColumn(SLICE, F.col("topic"))
        if limit is not None:
            rows = rows.orderBy(*_ORDER).limit(limit)
        if self._done:
            marks = F.create_map(*(F.lit(one) for pair in self._done.items() for one in pair))
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
        return rows.select(*SENDING), lanes
