"""Files of records, read by the column: archives of the format framed, whose records are of kind `MESSAGES`, and the topic log
of nsqd, whose records are of kind `PUBLISHED`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from nsq_spark.archive.chunk import (
    ID_BYTES,
    MOST_MESSAGES,
    Chunk,
    Chunks,
    Payload,
    equal_runs,
    index_in_records,
    positions_in_records,
    published_payload,
    runs,
)
from nsq_spark.archive.formats.records import Records, Walk, may_be_requested
from nsq_spark.archive.splits import Damage, Names, Requested, Split
from nsqd_py.diskqueue.messages import FLAG_DUE
from nsqd_py.diskqueue.records import (
    FLAG_ZSTD,
    MESSAGES,
    PUBLISHED,
    RECORD_HEADER_BYTES,
    Damaged,
    RecordHeader,
    decode_header,
)
from nsqd_py.stores.files import File

_KNOWN_FLAGS = FLAG_ZSTD | FLAG_DUE
_NAME_LENGTHS = Struct("<BBH")
_LATER_VERSION = "a record of a later version, which this one cannot read"


def read(file: File, split: Split, requested: Requested, damage: Damage) -> Chunks:
    """Raises OSError and DamagedArchive."""
    stored = StoredRecords(split.path, requested, damage)
    has_topic = requested.has_topic(split.topic)
    for records in Walk(file, split, requested, damage).run():
        kinds = records.headers["kind"]
        flags = records.headers["flags"]
        changes = np.diff(kinds) | np.diff(flags)
        for first, end in equal_runs(changes, len(kinds)):
            if kinds[first] == MESSAGES:
                yield from stored.chunks(records, first, end)
            elif kinds[first] != PUBLISHED or flags[first] != 0:
                _report(damage, split.path, records, first, end - 1, _LATER_VERSION)
            elif has_topic:
                yield from published_chunks(records, first, end, split, requested)


def _report(damage: Damage, path: str, records: Records, first: int, last: int, what: str) -> None:
    """Report records `first` to `last` (included) as damage."""
    start, end = (records.offset + records.offsets[index] for index in (first, last))
    damage.found(path, start, end + int(records.headers["length"][last]), what)


# ---- records of the topic log


def published_chunks(records: Records, first: int, end: int, split: Split, requested: Requested) -> Chunks:
    """Yield the messages of records `first` to `end` (not included) whose time is requested."""
    all_headers = records.headers[first:end]
    all_offsets = np.array(records.offsets[first:end], dtype=np.int64)
    if requested.has_range:
        times_ns = all_headers["timestamp_ns"]
        is_requested = requested.overlaps(times_ns, times_ns)
        all_headers = all_headers[is_requested]
        all_offsets = all_offsets[is_requested]
    messages = np.cumsum(all_headers["count"].astype(np.int64))
    for low, high in runs(messages, MOST_MESSAGES):
        headers = all_headers[low:high]
        offsets = all_offsets[low:high]
        counts = headers["count"].astype(np.int64)
        begins = offsets + RECORD_HEADER_BYTES
        if split.nsqd:
            positions = np.repeat(headers["first_seq"].astype(np.int64), counts) + index_in_records(counts)
        else:
            positions = positions_in_records(offsets + records.offset, counts)
        yield Chunk(
            split.topic,
            None,
            split.path,
            positions,
            published_payload(records.data, begins, begins + headers["length"], counts, headers["stride"]),
            np.repeat(headers["timestamp_ns"], counts),
            np.zeros(int(counts.sum()), dtype=np.uint16),
            np.repeat(headers["base_id"], counts) + index_in_records(counts).astype(np.uint64),
            split.nsqd or None,
        )


# ---- records of archives (`nsqd_py.diskqueue.messages`)


class Stored(NamedTuple):
    """The body of a record, decompressed: its names, and its columns in `buffer` from `columns_at` to `end`.

    number  its index in its block
    offset  where the record begins in its file
    """

    number: int
    offset: int
    header: RecordHeader
    names: bytes
    buffer: Any
    columns_at: int
    end: int


@dataclass
class StoredRecords:
    """Decodes the records of one file."""

    _path: str
    _requested: Requested
    _damage: Damage

    def chunks(self, records: Records, first: int, end: int) -> Chunks:
        """Yield the messages of records `first` to `end` (not included) whose topic and times may be requested; their flags are
        the same.

        Neighbours of one origin are decoded together, which takes hardly longer than one of them: 0.3 ms a record.
        Raises DamagedArchive, after what comes before the damage.
        """
        group: list[Stored] = []
        buffer = pa.py_buffer(records.data)
        for number in range(first, end):
            try:
                stored = self._stored(records, number, buffer)
            except (Damaged, ValueError, OSError, struct.error) as error:
                yield from self._decoded(records, group)
                group = []
                self._report(records, number, error)
                continue
            if stored is None:
                continue
            if group and (stored.names != group[0].names or stored.buffer is not group[0].buffer):
                yield from self._decoded(records, group)
                group = []
            group.append(stored)
        yield from self._decoded(records, group)

    def _decoded(self, records: Records, group: Sequence[Stored]) -> Chunks:
        if not group:
            return
        try:
            yield self._chunk(group)
        except ValueError as error:
            if len(group) == 1:
                self._report(records, group[0].number, error)
                return
            for stored in group:  # to find out which one it is
                yield from self._decoded(records, [stored])

    def _report(self, records: Records, number: int, error: Exception) -> None:
        is_known = isinstance(error, Damaged)
        if is_known:
            what = str(error)
        else:
            what = f"the columns of a record do not fit its header: {error}"
        _report(self._damage, self._path, records, number, number, what)

    def _stored(self, records: Records, number: int, buffer: Any) -> Stored | None:
        """Return a record; None if it is not requested. Raises Damaged for one of a later version, and ValueError, OSError
        or struct.error if its body cannot be decompressed or is too short.
        """
        offset = records.offsets[number]
        header = decode_header(records.data, offset)
        if not may_be_requested(header, self._requested):
            return None
        if header.flags & ~_KNOWN_FLAGS:
            raise Damaged(_LATER_VERSION)
        start = offset + RECORD_HEADER_BYTES
        end = offset + header.record_bytes
        if header.flags & FLAG_ZSTD:
            buffer = pa.decompress(buffer.slice(start, header.length), header.stride, codec="zstd")
            start = 0
            end = buffer.size
        octets = memoryview(buffer)[start:end]
        names_end = _NAME_LENGTHS.size + sum(_NAME_LENGTHS.unpack_from(octets))
        names = bytes(octets[:names_end])
        topic, _, _ = _decoded_names(names)
        if not self._requested.has_topic(topic):
            return None
        return Stored(number, records.offset + offset, header, names, buffer, start + names_end, end)

    def _chunk(self, group: Sequence[Stored]) -> Chunk:
        """Raises ValueError."""
        sizes_at = 16 if group[0].header.flags & FLAG_DUE else 8  # behind the times, for each message
        timestamps_ns = _column(group, "<i8", 0)
        sizes = _column(group, "<u4", sizes_at)
        attempts = _column(group, "<u2", sizes_at + 4)
        ids = _column(group, f"V{ID_BYTES}", sizes_at + 6).view(np.uint8).reshape(-1, ID_BYTES)
        counts = np.array([stored.header.count for stored in group])
        columns_at = np.array([stored.columns_at for stored in group])
        begins = columns_at + (sizes_at + 6 + ID_BYTES) * counts
        ends = np.array([stored.end for stored in group])
        payload = Payload.of_ranges(group[0].buffer, begins, ends, counts, sizes)
        offsets = np.array([stored.offset for stored in group])
        positions = positions_in_records(offsets, counts)
        topic, channel, nsqd = _decoded_names(group[0].names)
        return Chunk(
            topic, channel or None, self._path, positions, payload, timestamps_ns, attempts, ids, nsqd or None
        )


@lru_cache
def _decoded_names(names: bytes) -> Names:
    """Return the topic, channel and nsqd that a body begins with; mostly the same again. Raises ValueError."""
    bounds = accumulate(_NAME_LENGTHS.unpack_from(names), initial=_NAME_LENGTHS.size)
    return tuple(names[start:end].decode() for start, end in pairwise(bounds))


def _column(group: Sequence[Stored], kind: str, offset: int) -> Any:
    """Return a column of several records, in each of which it begins `offset` bytes a message behind the first one.

    Raises ValueError.
    """
    return np.concatenate(
        [
            np.frombuffer(one.buffer, kind, one.header.count, one.columns_at + offset * one.header.count)
            for one in group
        ]
    )
