"""Parquet, as nsq-to-file writes it: columns topic, channel, timestamp, id, attempts, body, nsqd.

`timestamp` is a number of ns since the epoch, or a timestamp of any unit; where there is a column `timestamp_ns`, as
in what Spark wrote of our own table, that is taken. All but `body` may be missing. A split takes the row groups whose
place is in it: the file is divided among the row groups by their sizes. The position of a message is its row.

pyarrow ends the process (`std::terminate`) when it is asked for the metadata of a column chunk and those are damaged:
`RowGroupMetaData.column` must not be called. Reading such a column raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.columns import Numbers
from nsq_spark.archive.damage import ArchiveError, Damage
from nsq_spark.archive.files import File, Stream
from nsq_spark.archive.splits import Split
from nsq_spark.archive.tables import STORED_TYPES, chunks_of
from nsq_spark.archive.wanted import Wanted

_BATCH_ROWS = 16 * 1024
_TIME_COLUMNS = ("timestamp_ns", "timestamp")
# What pyarrow raises when bytes are not what they should be; MemoryError: a size that is none.
_UNREADABLE = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError)


def read(file: File, split: Split, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Raises ArchiveError and DamagedArchive."""
    try:
        parquet = pq.ParquetFile(pa.PythonFile(Stream(file), "r"), page_checksum_verification=True)
        groups = _Groups(parquet, split, wanted, damage)
        found = list(groups.all())
    except _UNREADABLE as error:
        if split.is_first:
            damage.found(split.path, 0, split.file_bytes, f"its footer cannot be read: {_first_line(error)}")
        return
    for group in found:
        yield from groups.chunks(group)


class _Group(NamedTuple):
    """A row group: its number, its first row, how many it has, its place in the file, and its size."""

    number: int
    row: int
    rows: int
    begin: int
    size_bytes: int


class _Groups:
    """The row groups of a split."""

    def __init__(self, parquet: Any, split: Split, wanted: Wanted, damage: Damage) -> None:
        self._parquet = parquet
        self._split = split
        self._wanted = wanted
        self._damage = damage
        self._metadata = parquet.metadata
        self._names = self._columns()

    def _columns(self) -> dict[str, str]:
        """The name that each of our columns has in the file."""
        there = set(self._parquet.schema_arrow.names)
        if "body" not in there:
            raise ArchiveError(f"{self._split.path} has no column `body`, so there are no messages in it")
        names = {name: name for name in STORED_TYPES if name in there}
        times = [name for name in _TIME_COLUMNS if name in there]
        return {**names, "timestamp": times[0]} if times else names

    def all(self) -> Iterator[_Group]:
        """Yield the row groups whose place is in the split."""
        groups = [self._metadata.row_group(number) for number in range(self._metadata.num_row_groups)]
        sizes = [max(1, group.total_byte_size) for group in groups]  # a damaged one may be negative
        file_bytes, all_bytes = self._split.file_bytes, sum(sizes)
        row = before_bytes = 0
        for number, (group, size_bytes) in enumerate(zip(groups, sizes, strict=True)):
            begin = file_bytes * before_bytes // all_bytes
            if self._split.start <= begin < self._split.end:
                yield _Group(number, row, group.num_rows, begin, file_bytes * size_bytes // all_bytes)
            row += group.num_rows
            before_bytes += size_bytes

    def chunks(self, group: _Group) -> Iterator[Chunk]:
        """Its messages. Raises DamagedArchive."""
        read_rows = 0
        try:
            if not self._may_be_wanted(group.number):
                return
            for batch in self._batches(group.number, list(self._names.values())):
                row = group.row + read_rows
                read_rows += batch.num_rows
                if self._split.after < group.row + read_rows - 1:
                    yield from chunks_of(*self._rows(batch, row), self._split, self._wanted)
        except _UNREADABLE as error:
            what = f"rows {group.row + read_rows} to {group.row + group.rows - 1} cannot be read: {_first_line(error)}"
            self._damage.found(self._split.path, group.begin, group.begin + group.size_bytes, what)

    def _rows(self, batch: pa.RecordBatch, row: int) -> tuple[dict[str, pa.Array], Numbers]:
        """Return the columns of rows from number `row` on, and their positions."""
        columns = {name: _cast(name, batch.column(there)) for name, there in self._names.items()}
        positions = np.arange(row, row + batch.num_rows, dtype=np.int64)
        body = columns["body"]
        if body.null_count:
            self._damage.found(self._split.path, row, row + body.null_count, "there are rows without a body")
            is_message = body.is_valid()
            columns = {name: column.filter(is_message) for name, column in columns.items()}
            positions = positions[is_message.to_numpy(zero_copy_only=False)]
        return columns, positions

    def _batches(self, group: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = self._parquet.iter_batches(
            _BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False
        )
        return batches

    # ---- is any of it wanted?

    def _may_be_wanted(self, group: int) -> bool:
        """By a look at the small columns: the metadata of column chunks must not be asked for."""
        times, topics = self._names.get("timestamp"), self._names.get("topic")
        if self._wanted.has_range and (times is None or not self._any(group, times, self._has_time)):
            return False
        return not self._wanted.has_topics or topics is None or self._any(group, topics, self._has_topic)

    def _any(self, group: int, name: str, is_wanted: Callable[[pa.Array], bool]) -> bool:
        return any(is_wanted(batch.column(0)) for batch in self._batches(group, [name]))

    def _has_time(self, column: pa.Array) -> bool:
        bounds = pc.min_max(_cast("timestamp", column)).as_py()
        return bounds["min"] is not None and self._wanted.overlaps(bounds["min"], bounds["max"])

    def _has_topic(self, column: pa.Array) -> bool:
        names = _cast("topic", column).unique().to_pylist()
        return any(self._wanted.has_topic(name or self._split.topic) for name in names)


def _cast(name: str, column: pa.Array) -> pa.Array:
    """In our type; times in ns. Raises pyarrow's errors."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("ns", tz=column.type.tz)).view(pa.int64())
    if STORED_TYPES[name] == pa.string():
        return _text(column)
    return column if column.type == STORED_TYPES[name] else pc.cast(column, STORED_TYPES[name])


def _text(column: pa.Array) -> pa.Array:
    """As UTF-8. Parquet does not check it; bytes that are none are replaced, since Python and the JVM refuse them."""
    try:
        texts = column if column.type == pa.string() else pc.cast(column, pa.string())
        texts.validate(full=True)
    except pa.ArrowInvalid:
        pieces = pc.cast(column, pa.binary()).to_pylist()
        return pa.array([None if piece is None else piece.decode(errors="replace") for piece in pieces], pa.string())
    return texts


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
