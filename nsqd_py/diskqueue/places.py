"""Reading one record of a log file, wherever it is, without the records around it.

The index of a file knows a place every 256 KiB. Messages that come back in another order than they were published
need one record here and one there: what is between two places of the index is walked once, header by header, and the
place of each record is remembered. Walking costs 0.4 us a record, reading a known record 3 us; a chunk of small
records costs 15 ms.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from struct import Struct

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.records import MAGIC, RECORD_HEADER_BYTES, Damaged, Incomplete, decode

# Reads so many bytes of a file at an offset.
Read = Callable[[LogFile, int, int], bytes]

_MOST_PLACES = 2_000_000  # of 16 bytes
_READ_BYTES = 256 * 1024
_READ_ALL_FOR = 48  # records: reading 256 KiB at once takes as long
_MOST_READ_BYTES = 2 * _READ_BYTES
# Of a record's header: magic, length of the body, first sequence number, count.
_unpack = Struct("<4sI8xQ24xI4x").unpack_from


class _Stretch:
    """The places of the records of a file from `start` on.

    end_offset, end_seq  up to where the file was walked
    is_broken            something there is no record
    """

    __slots__ = ("end_offset", "end_seq", "is_broken", "offsets", "seqs", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end_offset = start
        self.end_seq = 0
        self.is_broken = False
        self.seqs = array("Q")
        self.offsets = array("Q")  # from `start` on

    def __len__(self) -> int:
        return len(self.seqs)

    def walk(self, file: LogFile, read: Read) -> None:
        """Go on for about 256 KiB. Raises OSError."""
        offset = self.end_offset
        data = read(file, offset, _READ_BYTES)
        note_seq, note_offset = self.seqs.append, self.offsets.append
        last = len(data) - RECORD_HEADER_BYTES
        base = offset - self.start
        position, end_seq = 0, self.end_seq
        while position <= last:
            magic, length, seq, count = _unpack(data, position)
            if magic != MAGIC or seq < end_seq:
                self.is_broken = True
                break
            note_seq(seq)
            note_offset(base + position)
            end_seq = seq + count
            position += RECORD_HEADER_BYTES + length
        if not position:
            self.is_broken = True
        self.end_seq = end_seq
        self.end_offset = offset + position

    def read_all(self, file: LogFile, read: Read) -> bytes:
        """The bytes of its records; none where these are too many to be read at once. Raises OSError."""
        size = self.end_offset - self.start
        return read(file, self.start, size) if size <= _MOST_READ_BYTES else b""

    def batch_at(self, file: LogFile, seq: int, data: bytes, read: Read) -> Batch | None:
        """The batch that holds `seq`; `data` is what `read_all` gave, or nothing. Raises OSError."""
        offsets = self.offsets
        at = bisect_right(self.seqs, seq) - 1
        if at < 0:
            return None
        position = offsets[at]
        if not data:
            after = offsets[at + 1] if at + 1 < len(offsets) else self.end_offset - self.start
            data = read(file, self.start + position, after - position)
            position = 0
        try:
            batch, _ = decode(data, position, file.salt)
        except (Damaged, Incomplete):
            return None
        return batch if seq < batch.first_seq + batch.count else None


class RecordPlaces:
    """Remembers the places of some million records, of all files that share it; those not used for longest go."""

    __slots__ = ("_count", "_most", "_stretches")

    def __init__(self, most: int = _MOST_PLACES) -> None:
        self._stretches: OrderedDict[tuple[LogFile, int], _Stretch] = OrderedDict()
        self._count = 0
        self._most = most

    def read_each(self, file: LogFile, seqs: Sequence[int], read: Read = LogFile.read) -> Iterator[Batch | None]:
        """For each of these numbers of one file, in rising order, the batch that holds it.

        None where it is not found, or damaged. `read` reads bytes of the file; it may raise BlockingIOError, then the
        call is to be made again later. Raises OSError.
        """
        batch: Batch | None = None
        after = 0
        for at, seq in enumerate(seqs):
            if batch is not None and batch.first_seq <= seq < batch.first_seq + batch.count:
                yield batch
                continue
            if at >= after:
                stretch = self._reaching(file, seq, read)
                after = max(at + 1, bisect_left(seqs, stretch.end_seq, at))
                data = stretch.read_all(file, read) if after - at >= _READ_ALL_FOR else b""
            batch = stretch.batch_at(file, seq, data, read)
            yield batch

    def _reaching(self, file: LogFile, seq: int, read: Read) -> _Stretch:
        """The stretch in which `seq` would be, walked as far."""
        stretch = self._stretch(file, file.offset_before(seq))
        while seq >= stretch.end_seq and not stretch.is_broken and stretch.end_offset < file.end_offset:
            before = len(stretch)
            stretch.walk(file, read)
            self._count += len(stretch) - before
        return stretch

    def _stretch(self, file: LogFile, start: int) -> _Stretch:
        key = (file, start)
        stretch = self._stretches.get(key)
        if stretch is not None:
            self._stretches.move_to_end(key)
            return stretch
        while self._count > self._most:
            _, oldest = self._stretches.popitem(last=False)
            self._count -= len(oldest)
        stretch = self._stretches[key] = _Stretch(start)
        return stretch

    def forget(self, file: LogFile) -> None:
        """The file is gone."""
        for key in [key for key in self._stretches if key[0] is file]:
            self._count -= len(self._stretches.pop(key))
