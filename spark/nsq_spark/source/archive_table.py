"""Archives as tables that Spark's own readers read, with files chosen by us.

    orders = nsq_archive(spark, "/archive", topic="orders")

`parquet`, `jsonl` and `lines` files are read by `spark.read.parquet`, `.json` and `.text`: rows never leave the JVM,
and filters and column pruning reach the files. Our reader (`format("nsq")`) reads the files of which Spark's would
return other rows: see `choose_readers`.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from nsq_spark.archive.files import ArchiveStream
from nsq_spark.archive.formats.parquet import STORED_TYPES, leaves_topic_to_directory
from nsq_spark.archive.listing import list_files
from nsq_spark.archive.names import hive_topic
from nsq_spark.archive.splits import Compression, FileInfo, Format, Requested, Skipped
from nsq_spark.archive.storage import Storage
from nsq_spark.schema import COLUMNS
from nsq_spark.source.batch_reader import SLICE, ArchivePartition, Rows, partitions_of, read_partition
from nsq_spark.source.data_source import session_settings
from nsq_spark.source.options import ReadOptions, read_options
from nsqd_py.runtime.documents import BYTE_ORDER_MARK

# Spark treats a path with `*`, `[` or `{` as a glob, shows other characters as escapes, and passes over hidden files.
_PLAIN_PATH = re.compile(r"(?:hdfs://|viewfs://|/)(?:[\w./=@+:,~-]*/)?(?![._])[\w.=@+:,~-]*", re.ASCII)
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_MOST_LISTING_TASKS = 32
_POSITION = "position"
_TYPES = {SLICE: "STRING", **{column.name: column.ddl for column in COLUMNS}}
_COLUMNS = [column.name for column in COLUMNS if column.name != _POSITION]
# Whatever the session says: a damaged file or line ends the query, and lines end with a newline alone.
_STRICT = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false", "recursiveFileLookup": "false"}
_LINES = {**_STRICT, "lineSep": "\n"}
_READING: dict[Format, dict[str, str]] = {
    Format.PARQUET: {**_STRICT, "parquet.page.verify-checksum.enabled": "true", "mergeSchema": "false"},
    Format.JSONL: {
        **_LINES,
        "mode": "FAILFAST",
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    },
    Format.LINES: _LINES,
}
_PARQUET_DDL = (
    "topic STRING, channel STRING, timestamp BIGINT, id STRING, attempts INT, body BINARY, nsqd STRING"
)
_JSON_DDL = _PARQUET_DDL.replace("BINARY", "STRING") + ", body_base64 STRING"
_NO_BODY = "CAST(raise_error('nsq: a message has no body, or two') AS BINARY)"
_JSON_BODY = (
    "CASE WHEN body_base64 IS NULL AND body IS NOT NULL THEN CAST(body AS BINARY) "
    f"WHEN body IS NULL AND body_base64 IS NOT NULL THEN to_binary(body_base64, 'base64') ELSE {_NO_BODY} END"
)
# The columns of `nsq_spark.schema` from those of nsq-to-file's files; `topic` depends on the file.
_STORED = {
    "channel": "nullif(channel, '')",
    # Rounded down, as in all other code: DIV alone rounds towards zero.
    "timestamp": "timestamp_micros((timestamp - pmod(timestamp, 1000)) DIV 1000)",
    "timestamp_ns": "timestamp",
    "id": "id",
    "attempts": "attempts",
    "nsqd": "nullif(nsqd, '')",
    "file": "if(startswith(_metadata.file_path, 'file:'), regexp_replace(_metadata.file_path, '^file:/*', '/'), "
    "_metadata.file_path)",
}
# Not from `_metadata`: Spark makes all of that for every row of the file, also for those that a filter drops.
_BLOCK = "input_file_block_start(), '+', input_file_block_length()"
_SLICE = f"concat({_BLOCK}, ':', regexp_replace(input_file_name(), '^file:/*', '/'))"
_EXPRESSIONS: dict[Format, Mapping[str, str]] = {
    Format.PARQUET: {**_STORED, "body": f"coalesce(body, {_NO_BODY})", _POSITION: "_metadata.row_index"},
    Format.JSONL: {**_STORED, "body": _JSON_BODY},
    Format.LINES: {"body": "CAST(value AS BINARY)", "file": _STORED["file"]},
}


class Choice(NamedTuple):
    """A kind of files that Spark reads together. `topic` is that of messages that do not have theirs, `time` the column in ns."""

    format: Format
    topic: str
    time: str = "timestamp"


def nsq_archive(spark: SparkSession, *paths: str, **options: object) -> DataFrame:
    """Return the messages of archives as a table, with the columns and options of `spark.read.format("nsq")`.

    It has no column `position`, which Spark's readers do not know. The files are listed now, not by each query. Raises
    BadOption and ArchiveError.
    """
    given = session_settings(spark)
    for name, value in options.items():
        given[name] = str(value)
        if isinstance(value, bool):
            given[name] = given[name].lower()
    given["paths"] = json.dumps(paths)
    read = read_options(given, time.time_ns())
    files = list_files(read.paths, read.storage, read.hints, read.requested, skips_damaged=read.skip_damaged)
    return table_of(spark, files, read, _COLUMNS)


def table_of(
    spark: SparkSession,
    files: Sequence[FileInfo],
    read: ReadOptions,
    columns: Sequence[str],
    done: frozenset[str] = frozenset(),
    own: OwnReader | None = None,
    where: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> DataFrame:
    """Return the messages of files as a table, without those of slices that are done. `own` reads all files itself.

    `where` selects rows; SLICE is the last of the columns. Raises ArchiveError.
    """
    by_spark: dict[Choice, list[str]] = {}
    if own is None:
        by_spark, ours = choose_readers(files, read, columns)
        own = OwnReader(partitions_of(ours, read, columns, done))
    stored = [name for name in columns if name != SLICE]
    frames = []
    for choice, paths in by_spark.items():
        with _listed_by_few_tasks(spark):
            rows = _by_spark(spark, choice, paths, stored, read.requested)
        if done:
            rows = rows.withColumn(SLICE, F.expr(_SLICE))
            rows = rows.where(~F.col(SLICE).isin(list(done)))
        rows = where(rows)
        if rows.columns != list(columns):
            rows = rows.withColumn(SLICE, F.expr(_SLICE))
        frames.append(rows)
    if own.partitions or not frames:
        ddl = ", ".join(f"{name} {_TYPES[name]}" for name in columns)
        rows = partition_numbers(spark, own.partitions).mapInArrow(own, ddl)
        frames.append(where(rows))
    return reduce(DataFrame.union, frames)


@dataclass
class OwnReader:
    """Reads the partitions whose numbers come, in `mapInArrow`. `_damage` is an accumulator for what was passed over."""

    partitions: Sequence[ArchivePartition]
    _damage: Accumulator[dict[str, Skipped]] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Rows:
        numbers = (batch.column(0).to_pylist() for batch in batches)
        for number in chain.from_iterable(numbers):
            partition = self.partitions[number]
            damage = partition.options.damage()
            yield from read_partition(partition, damage)
            if self._damage and damage.counts:
                self._damage.add(damage.counts)


def partition_numbers(spark: SparkSession, partitions: Sized) -> DataFrame:
    """Return a row with the number of each partition, each in its own task."""
    return spark.range(0, len(partitions), 1, max(1, len(partitions)))


# ---- which reader


def choose_readers(
    files: Sequence[FileInfo], read: ReadOptions, columns: Sequence[str]
) -> tuple[dict[Choice, list[str]], list[FileInfo]]:
    """Return the paths that Spark reads, and the files that our reader reads. Raises ArchiveError.

    Ours are: all files if damage is to be skipped; other formats and zstd; `jsonl` that no manifest describes, since
    only our reader finds a second object on a line; files that may grow, or whose last line is torn; columns and
    options that Spark's reader of the format does not know; stores other than local ones and HDFS; names that Spark
    would take for something else.
    """
    by_spark: dict[Choice, list[str]] = defaultdict(list)
    ours: list[FileInfo] = []
    for info in files:
        if not info.may_hold(read.requested):
            continue
        time = ""
        # Spark does not find out which messages have no topic where the name of the file fits several.
        has_topic = bool(info.topic) or info.is_described
        if has_topic and _suits_options(info, read, columns) and _is_as_spark_reads(info, read.storage):
            time = "timestamp"
            if info.format is Format.PARQUET:
                time = _time_column(info, read.storage)
        if time:
            has_topics = info.is_described and info.format is not Format.LINES and not hive_topic(info.path)
            by_spark[Choice(info.format, "" if has_topics else info.topic, time)].append(info.path)
        else:
            ours.append(info)
    return by_spark, ours


def _suits_options(info: FileInfo, read: ReadOptions, columns: Sequence[str]) -> bool:
    expressions = _EXPRESSIONS.get(info.format)
    if expressions is None or read.skip_damaged or (_POSITION in columns and _POSITION not in expressions):
        return False
    # Java's regular expressions are not RE2's.
    return info.format is Format.LINES or read.requested.topic_pattern is None


def _is_as_spark_reads(info: FileInfo, storage: Storage) -> bool:
    """True if Spark's reader finds the same messages in the file as ours. Raises ArchiveError."""
    if not _PLAIN_PATH.fullmatch(info.path):
        return False
    if info.compression is Compression.GZIP and info.format is not Format.PARQUET:
        return info.is_described and info.path.endswith(".gz")
    if info.compression is not Compression.NONE:
        return False
    if info.format is Format.PARQUET:
        return True
    if info.format is Format.JSONL and not info.is_described:
        return False  # Spark's reader drops what follows the first object of a line; nsq-to-file writes no such line
    is_finished = info.is_described or not info.is_live or not storage.may_grow(info.path)
    return is_finished and _holds_whole_lines(info, storage)


def _holds_whole_lines(info: FileInfo, storage: Storage) -> bool:
    """True unless the last line is torn, or the first begins with a byte order mark, which Spark would remove."""
    with storage.open(info.path) as file:
        if file.read_at(0, len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK:
            return False
        return file.read_at(info.size_bytes - 1, 1) == b"\n"


def _time_column(info: FileInfo, storage: Storage) -> str:
    """Return the column with the times in ns of a Parquet file; "" if a column has not our type, or its topic is not known."""
    try:
        with storage.open(info.path) as file:
            stream = ArchiveStream(file, info.path)
            schema = pq.read_schema(pa.PythonFile(stream, "r"))
    except (pa.ArrowException, OSError, ValueError):
        return ""
    if info.is_guessed and leaves_topic_to_directory(schema.names):
        return ""
    types = dict(zip(schema.names, schema.types, strict=True))
    time = "timestamp_ns" if "timestamp_ns" in types else "timestamp"
    if "body" not in types:
        return ""
    for name, kind in STORED_TYPES.items():
        stored_name = time if name == "timestamp" else name
        if types.get(stored_name, kind) != kind:
            return ""
    return time


# ---- reading with Spark


@contextmanager
def _listed_by_few_tasks(spark: SparkSession) -> Iterator[None]:
    """Let Spark list the paths in few tasks. It does so in a job if there are many, by default with a task for each path."""
    before = str(spark.conf.get(_LISTING_TASKS))
    spark.conf.set(_LISTING_TASKS, str(min(int(before), _MOST_LISTING_TASKS)))
    try:
        yield
    finally:
        spark.conf.set(_LISTING_TASKS, before)


def _by_spark(
    spark: SparkSession, choice: Choice, paths: Sequence[str], columns: Sequence[str], requested: Requested
) -> DataFrame:
    reader = spark.read.options(**_READING[choice.format])
    topic = "topic"
    if choice.topic:
        topic = f"coalesce(nullif(topic, ''), {_literal(choice.topic)})"
    if choice.format is Format.PARQUET:
        ddl = _PARQUET_DDL.replace("timestamp", choice.time)
        rows = reader.schema(ddl).parquet(*paths).withColumnRenamed(choice.time, "timestamp")
    elif choice.format is Format.JSONL:
        rows = reader.schema(_JSON_DDL).json(list(paths))
    else:
        rows = reader.text(list(paths)).where("value != ''")
        topic = _literal(choice.topic)
        requested = Requested()  # whole files were chosen
    for condition in _conditions(requested, topic):
        rows = rows.where(condition)
    expressions = {"topic": topic, **_EXPRESSIONS[choice.format]}
    return rows.selectExpr(
        *(f"CAST({expressions.get(name, 'NULL')} AS {_TYPES[name]}) AS {name}" for name in columns)
    )


def _conditions(requested: Requested, topic: str) -> Iterator[str]:
    if requested.topics is not None:
        yield f"{topic} IN ({', '.join(map(_literal, sorted(requested.topics)))})"
    if requested.start_ns is not None:
        yield f"timestamp >= {requested.start_ns}L"
    if requested.end_ns is not None:
        yield f"timestamp < {requested.end_ns}L"


def _literal(text: str) -> str:
    """A text that has no escapes, whatever the session's settings say about those."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
