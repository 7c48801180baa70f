"""Finding records in a log file: an index with about one entry per 256 KiB, and walking from header to header."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.records import MAGIC, RECORD_HEADER_BYTES, RecordHeader, decode, decode_header

INDEX_EVERY = 256 * 1024


class Place(NamedTuple):
    """The start of a record, and a summary of the records before it.

    seq            all numbers before it are lower, all from it on are not
    offset         offset of the record in the file
    message_count  messages before it in the file
    newest_ns      the latest timestamp before it, or later
    """

    seq: int
    offset: int
    message_count: int
    newest_ns: int


class Segment(NamedTuple):
    """The bytes and messages between two places; the messages have numbers in low..high (not included)."""

    low: int
    high: int
    size_bytes: int
    message_count: int


class FileIndex:
    """The index of one file, as columns of equal length.

    `offsets` is public because the writer reads its last entry with each batch.
    """

    __slots__ = ("_counts", "_newest_ns", "_seqs", "offsets")

    def __init__(self, first_seq: int, offset: int) -> None:
        self.offsets = [offset]
        self._seqs = [first_seq]
        self._counts = [0]
        self._newest_ns = [0]

    def append(self, place: Place) -> None:
        """Add a place behind all others."""
        self._seqs.append(place.seq)
        self.offsets.append(place.offset)
        self._counts.append(place.message_count)
        self._newest_ns.append(place.newest_ns)

    def insert(self, seq: int, offset: int, count: int, newest_ns: int) -> None:
        """Add a place between others, unless one is near; `newest_ns` is that of the whole file.

        The latest timestamp before the new place is unknown. That of the next place is a correct upper bound.
        """
        at = bisect_right(self.offsets, offset)
        if offset - self.offsets[at - 1] >= INDEX_EVERY:
            self.offsets.insert(at, offset)
            self._seqs.insert(at, seq)
            self._counts.insert(at, count)
            self._newest_ns.insert(at, self._newest_ns[at] if at < len(self._newest_ns) else newest_ns)

    def offset_before(self, seq: int) -> int:
        """Return the offset of a record at or before `seq`."""
        return self.offsets[max(0, bisect_right(self._seqs, seq) - 1)]

    def seq_after(self, seq: int) -> int | None:
        """Return the number of the first place behind `seq`; None behind the last."""
        at = bisect_right(self._seqs, seq)
        return self._seqs[at] if at < len(self._seqs) else None

    def offset_before_time(self, timestamp_ns: int) -> int:
        """Return the offset of a record at or before the first message of this time or later."""
        return self.offsets[max(0, bisect_left(self._newest_ns, timestamp_ns) - 1)]

    def segments(self, end: Place) -> Iterator[Segment]:
        """Yield what lies between the places; `end` is the end of the file."""
        places = [*zip(self._seqs, self.offsets, self._counts, strict=True), end[:3]]
        for (low, low_offset, low_count), (high, high_offset, high_count) in zip(places, places[1:], strict=False):
            yield Segment(low, high, high_offset - low_offset, high_count - low_count)

    def copy(self) -> FileIndex:
        """Return a copy for use in another thread."""
        copy = FileIndex(0, 0)
        copy.offsets = self.offsets.copy()
        copy._seqs = self._seqs.copy()
        copy._counts = self._counts.copy()
        copy._newest_ns = self._newest_ns.copy()
        return copy


_WINDOW_BYTES = 128 * 1024
_place_of = Struct("<4sI8xQ24xI4x").unpack_from  # of a record's header: magic, length, first number, count
_time_of = Struct("<4sI8xQ8xQ8xI4x").unpack_from  # the same with the timestamp before the count


class RecordWindow:
    """A buffered part of a file that moves with the reads. `end` is the offset at which the last record ends."""

    __slots__ = ("_data", "_end", "_fd", "_start")

    def __init__(self, fd: int, end: int) -> None:
        self._fd = fd
        self._end = end
        self._start = 0
        self._data = b""

    def header(self, offset: int) -> RecordHeader:
        """Return the header of the record at `offset`. Raises Damaged, Incomplete, OSError."""
        position = self._hold(offset, RECORD_HEADER_BYTES)
        return decode_header(self._data, position)

    def batch(self, offset: int, header: RecordHeader, salt: int) -> Batch:
        """Return the batch at `offset`, verified. Raises Damaged, Incomplete, OSError."""
        position = self._hold(offset, header.record_bytes)
        return decode(self._data, position, salt)[0]

    def skip_below(self, offset: int, seq: int) -> int:
        """Return the offset, from `offset` on, of the first record that ends behind `seq`, or of damage.

        Skipping a record takes a tenth of the time that decoding its header takes. Raises OSError.
        """
        while offset < self._end:
            position = self._hold(offset, RECORD_HEADER_BYTES)
            data = self._data
            last = len(data) - RECORD_HEADER_BYTES
            if position > last:
                break
            while position <= last:
                magic, length, first_seq, count = _place_of(data, position)
                if magic != MAGIC or first_seq + count > seq:
                    return self._start + position
                position += RECORD_HEADER_BYTES + length
            offset = self._start + position
        return offset

    def skip_older(self, offset: int, timestamp_ns: int, seq: int) -> tuple[int, int]:
        """Return (offset, number) of the first record from `offset` on with that timestamp or a later one.

        It has messages from `seq` on. At damage or at the end, the number is the one after the last record. Raises
        OSError.
        """
        reached = seq
        while offset < self._end:
            position = self._hold(offset, RECORD_HEADER_BYTES)
            data = self._data
            last = len(data) - RECORD_HEADER_BYTES
            if position > last:
                break
            while position <= last:
                magic, length, first_seq, found_ns, count = _time_of(data, position)
                after = first_seq + count
                if magic != MAGIC or (found_ns >= timestamp_ns and after > seq):
                    return self._start + position, reached if magic != MAGIC else max(first_seq, seq)
                reached = max(reached, after)
                position += RECORD_HEADER_BYTES + length
            offset = self._start + position
        return offset, reached

    def headers(self, offset: int) -> Iterator[tuple[int, RecordHeader]]:
        """Yield (offset, header) of the record at `offset` and all behind it. Raises Damaged, Incomplete, OSError."""
        while offset < self._end:
            header = self.header(offset)
            yield offset, header
            offset += header.record_bytes

    def _hold(self, offset: int, size: int) -> int:
        """Load `size` bytes from `offset` on, or as many as there are; return their position in the data."""
        position = offset - self._start
        if position < 0 or position + size > len(self._data):
            left = max(0, self._end - offset)
            self._data = os.pread(self._fd, min(max(size, _WINDOW_BYTES), left), offset)
            self._start = offset
            position = 0
        return position
