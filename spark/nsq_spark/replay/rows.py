"""Messages as rows of Arrow, for sorting and for Spark SQL; and as blocks again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.chunk import Chunk, Origin
from nsq_spark.archive.payload import Payload
from nsq_spark.replay.blocks import Block
from nsq_spark.replay.marks import Marks
from nsq_spark.replay.order import KEYS
from nsq_spark.schema import COLUMNS, arrow_schema

FILE_NUMBER = "file_number"
PART = "part"
# What it takes to send a message, in its order.
_NUMBERS = (FILE_NUMBER, PART)
SENDING = ("topic", "timestamp_ns", FILE_NUMBER, "position", "body")


def schema_of(names: tuple[str, ...]) -> pa.Schema:
    """Of columns of `nsq_spark.schema`, and the numbers of file and part."""
    ours = arrow_schema()
    return pa.schema([pa.field(name, pa.int32()) if name in _NUMBERS else ours.field(name) for name in names])


def ddl_of(names: tuple[str, ...]) -> str:
    """The same for Spark."""
    types = {column.name: column.ddl for column in COLUMNS} | dict.fromkeys(_NUMBERS, "INT")
    return ", ".join(f"{name} {types[name]}" for name in names)


def rows_of(block: Block, names: tuple[str, ...], part: int = -1) -> pa.RecordBatch:
    """Of a block of one file. Costs only what is asked for."""
    chunk, count = block.chunk, block.count
    file = block.marks.files
    assert isinstance(file, int)
    numbers = {FILE_NUMBER: file, PART: part}
    columns = [
        pa.array(np.full(count, numbers[name], np.int32)) if name in numbers else chunk.column(name) for name in names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(names))


def by_file(rows: pa.RecordBatch, number: str = FILE_NUMBER) -> Iterator[tuple[int, Block]]:
    """Blocks of one topic and file (or part) each, in the order of the rows, with its number."""
    files = rows.column(FILE_NUMBER).to_numpy(zero_copy_only=False)
    numbers = rows.column(number).to_numpy(zero_copy_only=False)
    topics = rows.column("topic").dictionary_encode()
    codes = topics.indices.to_numpy(zero_copy_only=False)
    changes = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(codes) != 0)) + 1
    bounds = [0, *changes.tolist(), rows.num_rows]
    for low, high in zip(bounds, bounds[1:], strict=False):
        part = rows.slice(low, high - low)
        chunk = _chunk(part, topics.dictionary[int(codes[low])].as_py())
        yield int(numbers[low]), Block(chunk, Marks(0, int(files[low]), chunk.positions))


def by_time(rows: pa.RecordBatch) -> Iterator[tuple[str, Block]]:
    """A block of each topic, which is a lane; in the order of the rows."""
    topics = rows.column("topic").dictionary_encode()
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        part = rows if len(topics.dictionary) == 1 else rows.filter(pc.equal(topics.indices, code))
        times, files, positions = (part.column(name).to_numpy(zero_copy_only=False) for name in KEYS)
        yield topic, Block(_chunk(part, topic), Marks(times, files, positions))


def _chunk(rows: pa.RecordBatch, topic: str) -> Chunk:
    """With what else there is of a message in the rows, for a look at it."""
    names = set(rows.schema.names)
    times = rows.column("timestamp_ns")
    ids = rows.column("id") if "id" in names else None
    file = rows.column("file")[0].as_py() if "file" in names else ""
    return Chunk(
        Origin(topic, None, file),
        rows.column("position").to_numpy(zero_copy_only=False),
        Payload.of_array(rows.column("body")),
        None if times.null_count else times.to_numpy(zero_copy_only=False),
        raw_ids=None if ids is None or ids.null_count else ids,
    )
