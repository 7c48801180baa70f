"""Files of records, read by the column: archives (`framed`), whose records are of kind `messages`, and the topic log of
nsqd, whose records are of kind `published`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa

from nsq_spark.archive.chunk import (
    ID_BYTES,
    MOST_MESSAGES,
    Chunk,
    MessageOrigin,
    Payload,
    equal_runs,
    index_in_records,
    positions_in_records,
    published_payload,
    runs,
)
from nsq_spark.archive.records import Records, Walk
from nsq_spark.archive.splits import Damage, Split, Wanted
from nsqd_py.diskqueue.messages import FLAG_DUE
from nsqd_py.diskqueue.records import FLAG_ZSTD, MESSAGES, PUBLISHED, RECORD_HEADER_BYTES, Damaged
from nsqd_py.stores.files import File

_KNOWN_FLAGS = FLAG_ZSTD | FLAG_DUE
_NAME_LENGTHS = Struct("<BBH")
_LATER_VERSION = "a record of a later version, which this one cannot read"


def read(file: File, split: Split, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Raises OSError and DamagedArchive."""
    stored = StoredRecords(split.path, wanted, damage)
    has_topic = wanted.has_topic(split.topic)
    origin = MessageOrigin(split.topic, None, split.path)
    for records in Walk(file, split, wanted, damage).run():
        kinds, flags = records.headers["kind"], records.headers["flags"]
        changes = (np.diff(kinds) != 0) | (np.diff(flags) != 0)
        for first, end in equal_runs(changes, len(kinds)):
            if kinds[first] == MESSAGES:
                yield from stored.chunks(records, first, end)
            elif kinds[first] != PUBLISHED or flags[first] != 0:
                _report(damage, split.path, records, first, end - 1, _LATER_VERSION)
            elif has_topic:
                yield from published_chunks(records, first, end, origin, wanted)


def _report(damage: Damage, path: str, records: Records, first: int, last: int, what: str) -> None:
    """Report records `first` to `last` (included) as damage."""
    start, end = (records.offset + records.places[index] for index in (first, last))
    damage.found(path, start, end + int(records.headers["length"][last]), what)


# ---- records of the topic log


def published_chunks(records: Records, first: int, end: int, origin: MessageOrigin, wanted: Wanted) -> Iterator[Chunk]:
    """Yield the messages of records `first` to `end` (not included) whose time is wanted."""
    all_headers = records.headers[first:end]
    all_places = np.array(records.places[first:end], dtype=np.int64)
    if wanted.has_range:
        is_wanted = wanted.in_range(all_headers["timestamp_ns"])
        all_headers, all_places = all_headers[is_wanted], all_places[is_wanted]
    messages = np.cumsum(all_headers["count"].astype(np.int64))
    for low, high in runs(messages, MOST_MESSAGES):
        headers, places = all_headers[low:high], all_places[low:high]
        counts = headers["count"].astype(np.int64)
        begins = places + RECORD_HEADER_BYTES
        yield Chunk(
            origin,
            positions_in_records(places + records.offset, counts),
            published_payload(records.data, begins, begins + headers["length"], counts, headers["stride"]),
            np.repeat(headers["timestamp_ns"], counts),
            np.zeros(int(counts.sum()), dtype=np.uint16),
            np.repeat(headers["base_id"], counts) + index_in_records(counts).astype(np.uint64),
        )


# ---- records of archives (`nsqd_py.diskqueue.messages`)


@dataclass(frozen=True, slots=True)
class Stored:
    """The body of a record, decompressed: its names, and its columns in `buffer` from `columns_at` to `end`.

    offset  where the record begins in its file
    """

    index: int
    offset: int
    count: int
    has_due: bool
    names: bytes
    buffer: Any
    columns_at: int
    end: int

    def is_like(self, other: Stored) -> bool:
        """True if both can be decoded together."""
        return self.names == other.names and self.buffer is other.buffer and self.has_due == other.has_due


class StoredRecords:
    """Decodes the records of one file."""

    def __init__(self, path: str, wanted: Wanted, damage: Damage) -> None:
        self._path = path
        self._wanted = wanted
        self._damage = damage
        self._origins: dict[bytes, tuple[MessageOrigin, str | None]] = {}

    def chunks(self, records: Records, first: int, end: int) -> Iterator[Chunk]:
        """Yield the messages of records `first` to `end` (not included) whose topic and times may be wanted.

        Neighbours that are alike are decoded together, which takes hardly longer than one of them: 0.3 ms a record.
        Raises DamagedArchive, after what comes before the damage.
        """
        group: list[Stored] = []
        buffer = pa.py_buffer(records.data)
        for index in range(first, end):
            try:
                stored = self._stored(records, index, buffer)
            except (Damaged, ValueError, OSError, struct.error) as error:
                yield from self._decoded(records, group)
                group = []
                self._report(records, index, error)
                continue
            if stored is None:
                continue
            if group and not stored.is_like(group[0]):
                yield from self._decoded(records, group)
                group = []
            group.append(stored)
        yield from self._decoded(records, group)

    def _decoded(self, records: Records, group: Sequence[Stored]) -> Iterator[Chunk]:
        if not group:
            return
        try:
            yield self._chunk(group)
        except ValueError as error:
            if len(group) == 1:
                self._report(records, group[0].index, error)
                return
            for stored in group:  # to find out which one it is
                yield from self._decoded(records, [stored])

    def _report(self, records: Records, index: int, error: Exception) -> None:
        is_known = isinstance(error, Damaged)
        what = str(error) if is_known else f"the columns of a record do not fit its header: {error}"
        _report(self._damage, self._path, records, index, index, what)

    def _stored(self, records: Records, index: int, buffer: Any) -> Stored | None:
        """Return a record; None if it is not wanted. Raises Damaged for one of a later version, and ValueError, OSError
        or struct.error if its body cannot be decompressed or is too short.
        """
        header, place = records.headers[index], records.places[index]
        first_ns, last_ns = int(header["timestamp_ns"]), int(header["base_id"])
        if not self._wanted.overlaps(first_ns, max(first_ns, last_ns)):
            return None
        flags = int(header["flags"])
        if flags & ~_KNOWN_FLAGS:
            raise Damaged(_LATER_VERSION)
        start = place + RECORD_HEADER_BYTES
        end = start + int(header["length"])
        if flags & FLAG_ZSTD:
            buffer = pa.decompress(buffer.slice(start, end - start), int(header["stride"]), codec="zstd")
            start, end = 0, buffer.size
        octets = memoryview(buffer)[start:end]
        names_end = _NAME_LENGTHS.size + sum(_NAME_LENGTHS.unpack_from(octets))
        names = bytes(octets[:names_end])
        if not self._wanted.has_topic(self._origin(names)[0].topic):
            return None
        offset, count, has_due = records.offset + place, int(header["count"]), bool(flags & FLAG_DUE)
        return Stored(index, offset, count, has_due, names, buffer, start + names_end, end)

    def _origin(self, names: bytes) -> tuple[MessageOrigin, str | None]:
        """Return the origin and the nsqd that a body begins with; mostly the same again. Raises ValueError."""
        found = self._origins.get(names)
        if found is None:
            topic_bytes, channel_bytes, _ = _NAME_LENGTHS.unpack_from(names)
            channel_at = _NAME_LENGTHS.size + topic_bytes
            nsqd_at = channel_at + channel_bytes
            topic, channel = names[_NAME_LENGTHS.size : channel_at].decode(), names[channel_at:nsqd_at].decode()
            found = MessageOrigin(topic, channel or None, self._path), names[nsqd_at:].decode() or None
            self._origins[names] = found
        return found

    def _chunk(self, group: Sequence[Stored]) -> Chunk:
        """Raises ValueError."""
        sizes_at = 16 if group[0].has_due else 8  # behind the times, for each message
        timestamps_ns = _column(group, "<i8", 0)
        sizes = _column(group, "<u4", sizes_at)
        attempts = _column(group, "<u2", sizes_at + 4)
        ids = _column(group, f"V{ID_BYTES}", sizes_at + 6)
        begins = [stored.columns_at + (sizes_at + 6 + ID_BYTES) * stored.count for stored in group]
        ends = [stored.end for stored in group]
        counts = np.array([stored.count for stored in group])
        payload = Payload.of_ranges(group[0].buffer, np.array(begins), np.array(ends), counts, sizes)
        positions = positions_in_records(np.array([stored.offset for stored in group]), counts)
        origin, nsqd = self._origin(group[0].names)
        return Chunk(origin, positions, payload, timestamps_ns, attempts, ids.view(np.uint8).reshape(-1, ID_BYTES), nsqd)


def _column(group: Sequence[Stored], kind: str, place: int) -> Any:
    """Return a column of several records, in each of which it begins `place` bytes a message behind the first one.

    Raises ValueError.
    """
    parts = [np.frombuffer(stored.buffer, kind, stored.count, stored.columns_at + place * stored.count) for stored in group]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
