"""Parquet, as nsq-to-file writes it: columns topic, channel, timestamp, timestamp_ns, id, attempts, body, nsqd.

`timestamp` is a timestamp of any unit or, as in files of earlier versions, a number of ns since the epoch; a column
`timestamp_ns` takes precedence. All but `body` may be missing. A split has the row groups whose position is in
it: the file is divided among the row groups by their sizes. The position of a message is its row. Columns that are
not needed are not read.

pyarrow ends the process (`std::terminate`) when it is asked for the metadata of a column chunk and those are damaged:
`RowGroupMetaData.column` must not be called. Reading such a column raises an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nsq_spark.archive.chunk import Chunk, Chunks, Nsqds, Payload, Ranges, constant, equal_runs, numbers_of
from nsq_spark.archive.files import ArchiveStream
from nsq_spark.archive.names import SAY_THE_TOPIC
from nsq_spark.archive.splits import ArchiveError, Damage, Numbers, Requested, Split, first_line
from nsqd_py.stores.files import File

# The columns that are read; `timestamp` is in ns since the epoch.
STORED_TYPES = {
    "topic": pa.string(),
    "channel": pa.string(),
    "timestamp": pa.int64(),
    "id": pa.string(),
    "attempts": pa.int32(),
    "body": pa.binary(),
    "nsqd": pa.string(),
}
_NAMES = ("topic", "channel")
_BATCH_ROWS = 16 * 1024
# What pyarrow raises when bytes are not what they should be; a MemoryError is a wrong size.
_UNREADABLE = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError)


def needed_columns(requested: Requested) -> set[str]:
    """Return the names of STORED_TYPES that the requested columns, and the choice of messages, need."""
    if requested.columns is None:
        return set(STORED_TYPES)
    chosen = {
        "timestamp": requested.needs_times,
        "topic": requested.needs_topics,
        "body": requested.needs_bodies,
    }
    return {name for name in STORED_TYPES if chosen.get(name, name in requested.columns)}


def leaves_topic_to_directory(columns: Collection[str]) -> bool:
    """True if nsq-to-file wrote a file with these columns to Hive's directory `topic=...`. Its name then begins with a host."""
    return "nsqd" in columns and "topic" not in columns


def chunks_of(
    columns: Mapping[str, pa.Array], positions: Numbers, split: Split, requested: Requested
) -> Chunks:
    """Yield chunks in the order of the rows; one ends where the topic, the channel or what is known of a row changes.

    `columns` are of STORED_TYPES; `body` has no nulls; any may be missing. Rows without a topic have the split's. Raises
    ArchiveError if that has none, and topics are needed.
    """
    if "body" in columns:
        payload = Payload.of_array(columns["body"])
    else:
        payload = Payload.unread(len(positions))
    known = {name: column for name, column in columns.items() if column.null_count < len(column)}
    for low, high in _runs(known, len(positions)):
        part = {name: column[low:high] for name, column in known.items()}
        full = {name: column for name, column in part.items() if not column.null_count}
        names = {name: full[name][0].as_py() for name in _NAMES if name in full}
        numbers = {name: numbers_of(full[name]) for name in ("timestamp", "attempts") if name in full}
        topic = names.get("topic") or split.topic
        if not topic and requested.needs_topics:
            raise ArchiveError(
                f"{split.path} has messages without a topic, and its name fits several: {SAY_THE_TOPIC}"
            )
        if requested.has_topic(topic):
            yield Chunk(
                topic,
                names.get("channel") or None,
                split.path,
                positions[low:high],
                payload.take(slice(low, high)),
                numbers.get("timestamp"),
                numbers.get("attempts"),
                full.get("id"),
                _nsqds(part.get("nsqd")),
            )


def _runs(known: Mapping[str, pa.Array], count: int) -> Ranges:
    """Return bounds of rows in which no name changes, and each column is known in all rows, or in none; but nsqds may vary."""
    changes = np.zeros(max(0, count - 1), dtype=bool)
    for name, column in known.items():
        values = None
        if column.null_count and name != "nsqd":
            values = column.is_null()
        if name in _NAMES and not _is_constant(column):
            values = column.dictionary_encode("encode").indices
        if values is not None:
            changes |= np.diff(values.to_numpy(zero_copy_only=False)) != 0
    return equal_runs(changes, count)


def _is_constant(column: pa.Array) -> bool:
    """True if all values are the same text, which takes a tenth of the time of `dictionary_encode`."""
    return not column.null_count and bool(column.equals(constant(column[0].as_py(), len(column))))


def _nsqds(column: pa.Array | None) -> Nsqds:
    if column is None:
        return None
    if _is_constant(column):
        return str(column[0]) or None
    return column.dictionary_encode()


def read(file: File, split: Split, requested: Requested, damage: Damage) -> Chunks:
    """Raises ArchiveError and DamagedArchive."""
    try:
        parquet = pq.ParquetFile(
            pa.PythonFile(ArchiveStream(file, split.path), "r"), page_checksum_verification=True
        )
        groups = list(_groups(parquet.metadata, split))
        names = _names_in(parquet, split.path, needed_columns(requested))
    except _UNREADABLE as error:
        if split.is_first:
            damage.found(split.path, 0, split.file_bytes, f"its footer cannot be read: {first_line(error)}")
        return
    if split.is_guessed and requested.needs_topics and leaves_topic_to_directory(parquet.schema_arrow.names):
        raise ArchiveError(
            f"{split.path} does not store its topic: nsq-to-file wrote it to a directory topic=..., from which it was copied, or "
            f"which the path must have: {SAY_THE_TOPIC}"
        )
    for group in groups:
        row = group.row
        try:
            columns = list(names.values())
            for batch in parquet.iter_batches(
                _BATCH_ROWS, row_groups=[group.number], columns=columns, use_threads=False
            ):
                there = {name: _cast(name, batch.column(column)) for name, column in names.items()}
                rows = np.arange(row, row + batch.num_rows, dtype=np.int64)
                if "body" in there and (missing := there["body"].null_count):
                    damage.found(split.path, row, row + missing, "there are rows without a body")
                    is_message = there["body"].is_valid()
                    there = {name: column.filter(is_message) for name, column in there.items()}
                    rows = rows[is_message.to_numpy(zero_copy_only=False)]
                row += batch.num_rows
                yield from chunks_of(there, rows, split, requested)
        except _UNREADABLE as error:
            what = f"rows {row} to {group.row + group.rows - 1} cannot be read: {first_line(error)}"
            damage.found(split.path, group.begin, group.begin + group.size_bytes, what)


def _names_in(parquet: Any, path: str, needed: set[str]) -> dict[str, str]:
    """Return the name that each of our columns to read has in the file. Raises ArchiveError if there is no body.

    A body that may be null is always read, since a row without one is no message. At least one column is read, since a damaged
    footer may have any number of rows.
    """
    schema = parquet.schema_arrow
    there = set(schema.names)
    if "body" not in there:
        raise ArchiveError(f"{path} has no column `body`, so there are no messages in it")
    names = {name: name for name in needed & there}
    if schema.field(schema.names.index("body")).nullable:
        names["body"] = "body"
    if "timestamp_ns" in there and "timestamp" in needed:
        names["timestamp"] = "timestamp_ns"
    if not names:
        least = "attempts" if "attempts" in there else "body"
        names[least] = least
    return names


class _Group(NamedTuple):
    """A row group: its number, its first row, how many it has, its position in the file, and its size."""

    number: int
    row: int
    rows: int
    begin: int
    size_bytes: int


def _groups(metadata: Any, split: Split) -> Iterator[_Group]:
    """Yield the row groups whose position is in the split."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [max(1, group.total_byte_size) for group in groups]  # a damaged one may be negative
    all_bytes = sum(sizes)
    row = 0
    before_bytes = 0
    for number, (group, size_bytes) in enumerate(zip(groups, sizes, strict=True)):
        begin = split.file_bytes * before_bytes // all_bytes
        if split.start <= begin < split.end:
            share = split.file_bytes * size_bytes // all_bytes
            yield _Group(number, row, group.num_rows, begin, share)
        row += group.num_rows
        before_bytes += size_bytes


def _cast(name: str, column: pa.Array) -> pa.Array:
    """Return a column in our type, times in ns. Raises pyarrow's errors."""
    kind = STORED_TYPES[name]
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if name == "timestamp" and pa.types.is_timestamp(column.type):
        in_ns = pa.timestamp("ns", tz=column.type.tz)
        column = pc.cast(column, in_ns).view(pa.int64())
    if kind == pa.string():
        return _text(column)
    return pc.cast(column, kind)


def _text(column: pa.Array) -> pa.Array:
    """Return a column as UTF-8, which Parquet does not check; other bytes are replaced, since the JVM refuses them."""
    try:
        texts = pc.cast(column, pa.string())
        texts.validate(full=True)
    except pa.ArrowInvalid:
        pieces = pc.cast(column, pa.binary()).to_pylist()
        return pa.array(
            [None if piece is None else piece.decode(errors="replace") for piece in pieces], pa.string()
        )
    return texts
