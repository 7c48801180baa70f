"""From record to record through a file, by their headers; what lies between is read in pieces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.records import MAGIC, RECORD_HEADER_BYTES, RecordHeader, decode, decode_header

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
