"""Places in a log file, about every 256 KiB: from where a number, or a time, is found by reading on.

----
From record to record through a file, by their headers; what lies between is read in pieces."""

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
    """Where a record begins, and what is known of those before it.

    seq            all before it are below, all from it on are not
    offset         in the file
    message_count  before it in the file
    newest_ns      no message before it is younger
    """

    seq: int
    offset: int
    message_count: int
    newest_ns: int


class Segment(NamedTuple):
    """What lies between two places: so many bytes, with so many messages of the numbers low..high (not included)."""

    low: int
    high: int
    size_bytes: int
    message_count: int


class FileIndex:
    """Rows of the same length; `offsets` is open to the writer, who looks at its end with each batch."""

    __slots__ = ("_counts", "_newest_ns", "_seqs", "offsets")

    def __init__(self, first_seq: int, offset: int) -> None:
        self.offsets = [offset]
        self._seqs = [first_seq]
        self._counts = [0]
        self._newest_ns = [0]

    def append(self, place: Place) -> None:
        """A place behind all others."""
        self._seqs.append(place.seq)
        self.offsets.append(place.offset)
        self._counts.append(place.message_count)
        self._newest_ns.append(place.newest_ns)

    def insert(self, seq: int, offset: int, count: int, newest_ns: int) -> None:
        """A place between others, if none is near; `newest_ns` is that of all the file.

        How young those before it are is not known: what is said of the next place is true of it too.
        """
        at = bisect_right(self.offsets, offset)
        if offset - self.offsets[at - 1] >= INDEX_EVERY:
            self.offsets.insert(at, offset)
            self._seqs.insert(at, seq)
            self._counts.insert(at, count)
            self._newest_ns.insert(at, self._newest_ns[at] if at < len(self._newest_ns) else newest_ns)

    def offset_before(self, seq: int) -> int:
        """Where a record begins from which `seq` is found by reading on."""
        return self.offsets[max(0, bisect_right(self._seqs, seq) - 1)]

    def seq_after(self, seq: int) -> int | None:
        """The number of the first place behind `seq`; None behind the last."""
        at = bisect_right(self._seqs, seq)
        return self._seqs[at] if at < len(self._seqs) else None

    def offset_before_time(self, timestamp_ns: int) -> int:
        """Where a record begins from which the first message of this time or later is found by reading on."""
        return self.offsets[max(0, bisect_left(self._newest_ns, timestamp_ns) - 1)]

    def segments(self, end: Place) -> Iterator[Segment]:
        """What lies between the places; `end` is the end of the file."""
        places = [*zip(self._seqs, self.offsets, self._counts, strict=True), end[:3]]
        for (low, low_offset, low_count), (high, high_offset, high_count) in zip(places, places[1:], strict=False):
            yield Segment(low, high, high_offset - low_offset, high_count - low_count)

    def copy(self) -> FileIndex:
        """As it is now, for another thread."""
        copy = FileIndex(0, 0)
        copy.offsets = self.offsets.copy()
        copy._seqs = self._seqs.copy()
        copy._counts = self._counts.copy()
        copy._newest_ns = self._newest_ns.copy()
        return copy


_WINDOW_BYTES = 128 * 1024
_place_of = Struct("<4sI8xQ24xI4x").unpack_from  # of a record's header: magic, length, first number, count


class RecordWindow:
    """A piece of a file that moves with what is asked for. `end` is where the last record ends."""

    __slots__ = ("_data", "_end", "_fd", "_start")

    def __init__(self, fd: int, end: int) -> None:
        self._fd = fd
        self._end = end
        self._start = 0
        self._data = b""

    def header(self, offset: int) -> RecordHeader:
        """The header of the record there. Raises Damaged, Incomplete, OSError."""
        position = self._hold(offset, RECORD_HEADER_BYTES)
        return decode_header(self._data, position)

    def batch(self, offset: int, header: RecordHeader, salt: int) -> Batch:
        """The record there, verified. Raises Damaged, Incomplete, OSError."""
        position = self._hold(offset, header.record_bytes)
        return decode(self._data, position, salt)[0]

    def skip_below(self, offset: int, seq: int) -> int:
        """Where the first record is, from the one at `offset` on, that has `seq` or a number behind it; or damage.

        A record is passed over in a tenth of the time that its header takes. Raises OSError.
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

    def headers(self, offset: int) -> Iterator[tuple[int, RecordHeader]]:
        """(offset, header) of the record there and of all behind it. Raises Damaged, Incomplete, OSError."""
        while offset < self._end:
            header = self.header(offset)
            yield offset, header
            offset += header.record_bytes

    def _hold(self, offset: int, size: int) -> int:
        """Have `size` bytes from `offset` on, as far as there are; where they are in the data."""
        position = offset - self._start
        if position < 0 or position + size > len(self._data):
            left = max(0, self._end - offset)
            self._data = os.pread(self._fd, min(max(size, _WINDOW_BYTES), left), offset)
            self._start = offset
            position = 0
        return position
