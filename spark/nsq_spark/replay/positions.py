"""Positions of messages in the order in which they are sent; and messages with their positions, as blocks and as rows.

A mark is the position of one message: (time, file, position). The time is the timestamp in ns if messages are sent in
order of time, else 0; the file is its number in the job's list; the position is that in the file. Marks are compared as
tuples, and do not depend on how the work is divided into tasks.

A lane is a sequence of messages in the order of their marks: "" is the order of files; the others have a name (a topic,
or a part of a shuffle).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.chunk import Chunk, Origin
from nsq_spark.archive.columns import Numbers
from nsq_spark.archive.payload import Payload
from nsq_spark.schema import COLUMNS, Column

Mark: TypeAlias = tuple[int, int, int]

BY_FILE = ""
LAST_POSITION = (1 << 63) - 1
BEFORE_ALL: Mark = (-(1 << 63), -1, -1)
# The columns of a mark in rows; and all that it takes to send a message, in its order.
KEYS = ("timestamp_ns", "file_number", "position")
FILE_NUMBER, PART = "file_number", "part"
SENDING = ("topic", *KEYS, "body")
_NUMBERS = (
    Column(FILE_NUMBER, "INT", pa.int32(), "number of the file in the job"),
    Column(PART, "INT", pa.int32(), "number of the split"),
)
_COLUMNS = {column.name: column for column in (*COLUMNS, *_NUMBERS)}


class Range(NamedTuple):
    """The messages of a lane after the mark `low`, up to and including the mark `high`."""

    low: Mark
    high: Mark


class Marks(NamedTuple):
    """The marks of several messages, by column; one number stands for the same time or file of all."""

    times_ns: Numbers | int
    files: Numbers | int
    positions: Numbers

    def at(self, index: int) -> Mark:
        time_ns, file = (column if isinstance(column, int) else int(column[index]) for column in self[:2])
        return time_ns, file, int(self.positions[index])

    def filter(self, mask: Any) -> Marks:
        times, files = (column if isinstance(column, int) else column[mask] for column in self[:2])
        return Marks(times, files, self.positions[mask])

    def up_to(self, mark: Mark) -> Any:
        """Return the mask of those that are not after a mark."""
        time_ns, file, position = mark
        in_file = (self.files < file) | ((self.files == file) & (self.positions <= position))
        return (self.times_ns < time_ns) | ((self.times_ns == time_ns) & in_file)

    def among(self, ranges: Sequence[Range]) -> Any:
        """Return the mask of those that are in any of the ranges, whose order does not matter."""
        found = np.zeros(len(self.positions), dtype=bool)
        for low, high in ranges:
            found |= self.up_to(high) & ~self.up_to(low)
        return found


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the same messages in as few ranges as possible, in order."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1].high:
            found[-1] = Range(found[-1].low, max(found[-1].high, high))
        else:
            found.append(Range(low, high))
    return found


def overlapping(ranges: Sequence[Range], low: Mark, high: Mark) -> Sequence[Range]:
    """Return those of some merged ranges that have anything after `low` and up to `high`."""
    first = bisect_right(ranges, low, key=lambda one: one.high)
    end = first
    while end < len(ranges) and ranges[end].low < high:
        end += 1
    return ranges[first:end]


@dataclass(frozen=True, slots=True)
class Block:
    """At least one message of one topic, in the order in which they are sent."""

    chunk: Chunk
    marks: Marks

    @property
    def count(self) -> int:
        return self.chunk.count

    @property
    def topic(self) -> str:
        return self.chunk.topic

    @property
    def times_ns(self) -> Numbers | None:
        return self.chunk.timestamps_ns

    @property
    def last(self) -> Mark:
        return self.marks.at(self.count - 1)

    def filter(self, mask: Any) -> Block:
        return self if mask.all() else Block(self.chunk.filter(mask), self.marks.filter(mask))

    def without(self, ranges: Sequence[Range]) -> Block:
        return self.filter(~self.marks.among(ranges)) if ranges else self


# ---- rows of Arrow, for sorting and for Spark SQL


def schema_of(names: tuple[str, ...]) -> pa.Schema:
    """Return the schema of columns of `nsq_spark.schema`, and of the numbers of file and part."""
    return pa.schema([(name, _COLUMNS[name].arrow) for name in names])


def ddl_of(names: tuple[str, ...]) -> str:
    """Return the same as DDL of Spark."""
    return ", ".join(f"{name} {_COLUMNS[name].ddl}" for name in names)


def rows_of(block: Block, names: tuple[str, ...], part: int = -1) -> pa.RecordBatch:
    """Return some columns of a block, whose messages are of one file."""
    numbers = {FILE_NUMBER: block.marks.files, PART: part}
    columns = [
        pa.array(np.full(block.count, numbers[name], np.int32)) if name in numbers else block.chunk.column(name) for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(names))


def marks_of(rows: pa.RecordBatch) -> Marks:
    return Marks(*(rows.column(name).to_numpy(zero_copy_only=False) for name in KEYS))


def by_file(rows: pa.RecordBatch, number: str = FILE_NUMBER) -> Iterator[tuple[int, Block]]:
    """Yield blocks of one topic and one file (or part) each, in the order of the rows, with the number of that."""
    files = rows.column(FILE_NUMBER).to_numpy(zero_copy_only=False)
    numbers = rows.column(number).to_numpy(zero_copy_only=False)
    topics = rows.column("topic").dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False)
    changes = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(codes) != 0)) + 1
    bounds = [0, *changes.tolist(), rows.num_rows]
    for low, high in zip(bounds, bounds[1:], strict=False):
        chunk = _chunk(rows.slice(low, high - low), topics.dictionary[int(codes[low])].as_py())
        yield int(numbers[low]), Block(chunk, Marks(0, int(files[low]), chunk.positions))


def by_time(rows: pa.RecordBatch) -> Iterator[tuple[str, Block]]:
    """Yield a block of each topic, with its lane, which is the topic."""
    topics = rows.column("topic").dictionary_encode()
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        part = rows if len(topics.dictionary) == 1 else rows.filter(pc.equal(topics.indices, code))
        yield topic, Block(_chunk(part, topic), marks_of(part))


def _chunk(rows: pa.RecordBatch, topic: str) -> Chunk:
    """Return the messages, with their ids if those are a column: a dry run shows them."""
    times = rows.column("timestamp_ns")
    ids = rows.column("id") if "id" in rows.schema.names else None
    return Chunk(
        Origin(topic, None, ""),
        rows.column("position").to_numpy(zero_copy_only=False),
        Payload.of_array(rows.column("body")),
        None if times.null_count else times.to_numpy(zero_copy_only=False),
        raw_ids=None if ids is None or ids.null_count else ids,
    )
