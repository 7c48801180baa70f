"""Reading batches from a log: chunks of about 1 MiB, single records, and searches by time.

Channels at the same place share chunks. Messages that return in another order than they were published need single
records from many places. The index of a file has one entry per 256 KiB; `RecordOffsets` walks the headers between two
entries once and remembers the place of each record. Walking takes 0.4 us a record, reading a record at a known place
3 us, and a chunk of small records 15 ms.

A wall clock may step back, so a time can occur twice. A search finds its first occurrence.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from struct import Struct

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.records import (
    FILE_HEADER_BYTES,
    MAGIC,
    RECORD_HEADER_BYTES,
    Damaged,
    Incomplete,
    RecordHeader,
    decode,
    decode_header,
)
from nsqd_py.diskqueue.recovery import DamageReport, find_record
from nsqd_py.guid import id_time_ns
from nsqd_py.memory_budget import MemoryBudget

READ_BYTES = 1024 * 1024
_SMALL_READ_BYTES = 64 * 1024
_SHARED_CHUNKS = 4


class ChunkReader:
    """Reads chunks and caches the last few. Damaged records are skipped and reported.

    read_file   reads bytes of a file, like `LogFile.read`; may raise BlockingIOError: try again later
    budget      counts the cached bytes, if set
    held_bytes  memory of the cached chunks
    """

    __slots__ = ("_chunks", "_damage", "_sizes", "budget", "held_bytes", "read_file")

    def __init__(self, damage: DamageReport) -> None:
        self._chunks: OrderedDict[int, list[Batch]] = OrderedDict()
        self._damage = damage
        self.read_file: Callable[[LogFile, int, int], bytes] = LogFile.read
        self._sizes: dict[int, int] = {}
        self.budget: MemoryBudget | None = None
        self.held_bytes = 0

    def remembered(self, seq: int) -> list[Batch] | None:
        """Return a cached chunk that holds this sequence number, or None."""
        for chunk in reversed(self._chunks.values()):
            if chunk[0].first_seq <= seq < chunk[-1].end_seq:
                return chunk
        return None

    def forget(self) -> None:
        self._chunks.clear()
        self._sizes.clear()
        self._count()

    def shrink(self, most_bytes: int) -> None:
        """Forget the oldest chunks until at most `most_bytes` are held."""
        left_bytes = self.held_bytes
        while self._chunks and left_bytes > most_bytes:
            first_seq, _ = self._chunks.popitem(last=False)
            left_bytes -= self._sizes.pop(first_seq)
        self._count()

    def _count(self) -> None:
        held_bytes = sum(self._sizes.values())
        change_bytes, self.held_bytes = held_bytes - self.held_bytes, held_bytes
        if self.budget is not None and change_bytes:
            self.budget.note(self, change_bytes)

    def read(self, file: LogFile, seq: int) -> list[Batch]:
        """Return batches of one file from the one that holds `seq`, or the next one. Empty at its end.

        Raises OSError.
        """
        chunk = self._read(file, seq)
        if chunk:
            self._chunks[chunk[0].first_seq] = chunk
            self._sizes[chunk[0].first_seq] = sum(batch.memory_bytes for batch in chunk)
            while len(self._chunks) > _SHARED_CHUNKS:
                first_seq, _ = self._chunks.popitem(last=False)
                del self._sizes[first_seq]
            self._count()
        return chunk

    def _read(self, file: LogFile, seq: int) -> list[Batch]:
        offset = file.offset_before(seq)
        wanted = READ_BYTES
        chunk: list[Batch] = []
        while offset < file.end_offset and not chunk:
            try:
                data = self.read_file(file, offset, wanted)
            except BlockingIOError:  # a thread reads it
                raise
            except OSError:
                if wanted < READ_BYTES:
                    raise
                wanted = _SMALL_READ_BYTES  # reads what is before the bad place
                continue
            if not data:  # another program truncated the file
                self._damage.report(file, offset, file.end_offset)
                break
            position = 0
            try:
                while position < len(data):
                    batch, position = decode(data, position, file.header.salt)
                    if batch.end_seq > seq:
                        chunk.append(batch)
            except Incomplete as incomplete:
                if offset + position + incomplete.needed > file.end_offset:  # its length field is damaged
                    if not chunk:
                        position = self._pass_damage(file, offset, position)
                elif position == 0:
                    if incomplete.needed <= wanted and not self.read_file(file, offset + len(data), 1):
                        self._damage.report(file, offset, file.end_offset)  # another program truncated the file
                        break
                    wanted = incomplete.needed
            except Damaged:
                if not chunk:
                    position = self._pass_damage(file, offset, position)
            offset += position
        if chunk:
            file.note(chunk[-1].end_seq, offset)
        return chunk

    def _pass_damage(self, file: LogFile, offset: int, position: int) -> int:
        """Report a damaged record; return where the next valid one begins, relative to `offset`."""
        data = self.read_file(file, offset, file.end_offset - offset)
        found = find_record(data, position + 1, file.header.salt)
        after = found if found is not None else len(data)
        self._damage.report(file, offset + position, offset + after)
        return after


# read(file, offset, size)
Read = Callable[[LogFile, int, int], bytes]

_MOST_PLACES = 2_000_000  # of 16 bytes
_WALK_BYTES = 256 * 1024
_READ_ALL_FOR = 48  # records: reading 256 KiB at once takes as long
_MOST_READ_BYTES = 2 * _WALK_BYTES
# Of a record's header: magic, length of the body, first sequence number, count.
_unpack = Struct("<4sI8xQ24xI4x").unpack_from


class _FileSection:
    """The places of the records of a file from `start` on.

    end_offset, end_seq  how far the file was walked
    is_broken            True if the walk met something that is no record
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
        """Walk on for about 256 KiB. Raises OSError."""
        offset = self.end_offset
        data = read(file, offset, _WALK_BYTES)
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
        """Return the bytes of its records; empty if they are too many for one read. Raises OSError."""
        size = self.end_offset - self.start
        return read(file, self.start, size) if size <= _MOST_READ_BYTES else b""

    def batch_at(self, file: LogFile, seq: int, data: bytes, read: Read) -> Batch | None:
        """Return the batch that holds `seq`, or None; `data` is the result of `read_all`, or empty. Raises OSError."""
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


class RecordOffsets:
    """The places of up to two million records, shared by all files; the least recently used are forgotten."""

    __slots__ = ("_count", "_most", "_sections")

    def __init__(self, most: int = _MOST_PLACES) -> None:
        self._sections: OrderedDict[tuple[LogFile, int], _FileSection] = OrderedDict()
        self._count = 0
        self._most = most

    def read_each(self, file: LogFile, seqs: Sequence[int], read: Read = LogFile.read) -> Iterator[Batch | None]:
        """Yield for each of these ascending numbers of one file the batch that holds it.

        Yield None if it is not found or is damaged. `read` reads bytes of the file; it may raise BlockingIOError, and
        then the call must be repeated later. Raises OSError.
        """
        batch: Batch | None = None
        after = 0
        for at, seq in enumerate(seqs):
            if batch is not None and batch.first_seq <= seq < batch.first_seq + batch.count:
                yield batch
                continue
            if at >= after:
                section = self._reaching(file, seq, read)
                after = max(at + 1, bisect_left(seqs, section.end_seq, at))
                data = section.read_all(file, read) if after - at >= _READ_ALL_FOR else b""
            batch = section.batch_at(file, seq, data, read)
            yield batch

    def _reaching(self, file: LogFile, seq: int, read: Read) -> _FileSection:
        """Return the section in which `seq` lies, walked as far as `seq`."""
        section = self._section(file, file.offset_before(seq))
        while seq >= section.end_seq and not section.is_broken and section.end_offset < file.end_offset:
            before = len(section)
            section.walk(file, read)
            self._count += len(section) - before
        return section

    def _section(self, file: LogFile, start: int) -> _FileSection:
        key = (file, start)
        section = self._sections.get(key)
        if section is not None:
            self._sections.move_to_end(key)
            return section
        while self._count > self._most:
            _, oldest = self._sections.popitem(last=False)
            self._count -= len(oldest)
        section = self._sections[key] = _FileSection(start)
        return section

    def forget(self, file: LogFile) -> None:
        for key in [key for key in self._sections if key[0] is file]:
            self._count -= len(self._sections.pop(key))


def first_since(files: Iterable[LogFile], timestamp_ns: int, low: int) -> int | None:
    """Return the number of the first message from `low` on published at `timestamp_ns` or later, or None.

    Reads up to about 256 KiB of one file. Raises OSError.
    """
    for file in files:
        if file.end_seq > low and file.newest_ns >= timestamp_ns:
            found = _first_in(file, timestamp_ns, low)
            if found is not None:
                return found
    return None


def first_published_since(files: Sequence[LogFile], steady_ns: int, low: int, *, by_timestamp: bool = False) -> int | None:
    """Return the number of the first message from `low` on whose id was generated at `steady_ns` or later, or None.

    Ids rise with the steady clock, whatever the wall clock does. Ids of dead letters do not: if the log may hold such
    (`by_timestamp`), the search starts where the timestamps lead to, if that is earlier. Raises OSError.
    """
    for file, following in zip_longest(files, files[1:]):
        # A file's header has the highest id before it.
        newest_id = following.header.used_id if following is not None else 0
        if file.end_seq <= low or (newest_id and id_time_ns(newest_id) < steady_ns):
            continue
        offset = _place_before(file, steady_ns)
        if by_timestamp:
            offset = min(offset, file.offset_before_time(steady_ns))
        offset = max(offset, file.offset_before(low))
        found = _first_from(file, offset, low, lambda record: id_time_ns(record.base_id) >= steady_ns)
        if found is not None:
            return found
    return None


def _place_before(file: LogFile, steady_ns: int) -> int:
    """Return the offset of a record before which all ids are of an earlier time. Raises OSError."""
    window = RecordWindow(file.fileno(), file.end_offset)

    def is_young(offset: int) -> bool:
        try:
            return id_time_ns(window.header(offset).base_id) >= steady_ns
        except (Damaged, Incomplete):
            return True  # rather too early

    places = file.places()
    return places[max(0, bisect_left(places, True, key=is_young) - 1)]


def _first_in(file: LogFile, timestamp_ns: int, low: int) -> int | None:
    """As `first_since` in one file. Skipping a record takes a sixth of the time that decoding its header takes."""
    offset = max(file.offset_before_time(timestamp_ns), file.offset_before(low))
    window = RecordWindow(file.fileno(), file.end_offset)
    offset, reached = window.skip_older(offset, timestamp_ns, max(file.first_seq, low))
    return reached if offset < file.end_offset else None


def _first_from(file: LogFile, offset: int, low: int, is_wanted: Callable[[RecordHeader], bool]) -> int | None:
    """Return the number of the first message from `low` on that `is_wanted` accepts, reading from `offset`, or None."""
    reached = max(file.first_seq, low)
    try:
        for _, record in RecordWindow(file.fileno(), file.end_offset).headers(offset):
            if is_wanted(record) and record.end_seq > low:
                return max(record.first_seq, low)
            reached = max(reached, record.end_seq)
    except (Damaged, Incomplete):
        return reached  # rather too early: what follows may be of that time
    return None


def first_record(file: LogFile) -> RecordHeader | None:
    """Return the header of the first record; None if it cannot be read. Raises OSError."""
    try:
        return RecordWindow(file.fileno(), file.end_offset).header(FILE_HEADER_BYTES)
    except (Damaged, Incomplete):
        return None


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
