"""Reading batches from a log: chunks of about 1 MiB, single records, and searches by time.

Channels at the same position share chunks. Messages that return in another order than they were published need single
records from many parts of a file: the index of a file has one entry per 64 KiB, and a search walks the headers from there.

A wall clock may step back, so a time can occur twice. A search finds its first occurrence.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from struct import Struct
from typing import NamedTuple, Protocol

from nsqd_py.diskqueue.checking import ReadAt, next_valid, read_by
from nsqd_py.diskqueue.damage import DamageReport
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.files.open_files import do_nothing
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.memory_budget import MemoryBudget
from nsqd_py.diskqueue.records import (
    FILE_HEADER_BYTES,
    MAGIC,
    RECORD_HEADER_BYTES,
    Damaged,
    FileHeader,
    Incomplete,
    RecordHeader,
    decode,
    decode_header,
    encode_record,
    next_record,
)
from nsqd_py.protocol.batch import Batch
from nsqd_py.protocol.message_ids import id_time_ns

READ_BYTES = 1024 * 1024
_SMALL_READ_BYTES = 64 * 1024
_WINDOW_BYTES = 64 * 1024
RETAINED_PIECE_BYTES = 256 * 1024
_SHARED_CHUNKS = 4

# Returns what the function returns in a thread; the greenlet waits for it.
ReadInThread = Callable[[Callable[[], "Piece"]], "Piece"]


class FileRange(Protocol):
    """A file with the messages first_seq..end_seq (not included); `salt` is that of its header."""

    @property
    def name(self) -> str: ...
    @property
    def first_seq(self) -> int: ...
    @property
    def end_seq(self) -> int: ...
    @property
    def salt(self) -> int: ...


class ReadableFile(FileRange, Protocol):
    """A log file as its readers see it: a `LogFile`, or a `nsqd_py.diskqueue.history.HistoryFile`."""

    @property
    def end_offset(self) -> int: ...
    @property
    def index_offsets(self) -> Sequence[int]: ...

    def offset_before(self, seq: int, /) -> int: ...
    def read(self, offset: int, size: int, /) -> bytes: ...


# ---- chunks


class Piece(NamedTuple):
    """A part of a file: whole batches, the offset behind them, and the damaged bytes before them."""

    batches: list[Batch]
    offset: int
    damaged: list[Range]


def read_piece(
    file: ReadableFile, seq: int, read: ReadAt, most_bytes: int = READ_BYTES, *, is_stored: bool = False
) -> Piece:
    """Read about `most_bytes` from the batch that holds `seq` on, or from the next one. Empty at the end of the file.

    `is_stored` is True if a store has the file: its errors are none of one block, and all of a file is too much for memory.
    Raises OSError, and what `read` raises.
    """
    offset = file.offset_before(seq)
    end = file.end_offset
    requested = most_bytes
    has_failed = False
    batches: list[Batch] = []
    damaged: list[Range] = []
    while offset < end and not batches:
        try:
            data = read(offset, min(requested, end - offset))
        except BlockingIOError:  # a thread reads it
            raise
        except OSError:
            if has_failed or is_stored:
                raise
            has_failed = True
            requested = _SMALL_READ_BYTES  # reads what is before the damage
            continue
        position = 0
        is_damaged = not data  # another program truncated the file
        try:
            while position < len(data):
                batch, position = decode(data, position, file.salt)
                if batch.end_seq > seq:
                    batches.append(batch)
                else:
                    damaged.clear()  # it is before what is read
        except Incomplete as incomplete:
            if offset + position + incomplete.needed > end:  # its length field is damaged
                is_damaged = True
            elif position == 0:
                is_damaged = incomplete.needed <= requested and not read(offset + len(data), 1)  # truncated
                requested = incomplete.needed
        except Damaged:
            is_damaged = True
        offset += position
        if is_damaged and not batches:
            after = _next_record_offset(read, file.salt, offset + 1, end, is_stored=is_stored)
            damaged.append((offset, after))
            offset = after
    return Piece(batches, offset, damaged)


def _next_record_offset(read: ReadAt, salt: int, offset: int, end: int, *, is_stored: bool) -> int:
    """Return the offset of the first valid record from `offset` on, or `end`. Raises what `read` raises."""
    if is_stored:
        return next_valid(read, salt, offset, end)
    # A slow disk keeps few pieces for a reader that comes again, so that it is one piece.
    found = next_record(read(offset, end - offset), 0, salt)
    return end if found is None else offset + found


class ChunkReader:
    """Reads chunks and caches the last few. Damaged records are skipped and reported.

    read_file     reads bytes of a file, like `LogFile.read`; may raise BlockingIOError: retry later
    forget_file   forgets what `read_file` has cached
    budget        counts the cached bytes, if set
    mend          begins to repair damaged bytes, if set; returns False if that is not possible
    memory_bytes  memory of the cached chunks
    """

    __slots__ = ("_chunks", "_damage", "_sizes", "budget", "forget_file", "memory_bytes", "mend", "read_file")

    def __init__(self, damage: DamageReport) -> None:
        self._chunks: OrderedDict[int, list[Batch]] = OrderedDict()
        self._damage = damage
        self.read_file: Callable[[LogFile, int, int], bytes] = LogFile.read
        self.forget_file: Callable[[], None] = do_nothing
        self._sizes: dict[int, int] = {}
        self.budget: MemoryBudget | None = None
        self.memory_bytes = 0
        self.mend: Callable[[LogFile, int, int], bool] | None = None

    def remembered(self, seq: int) -> list[Batch] | None:
        """Return a cached chunk that holds this sequence number, or None."""
        for chunk in reversed(self._chunks.values()):
            if chunk[0].first_seq <= seq < chunk[-1].end_seq:
                return chunk
        return None

    def forget(self) -> None:
        """Read again what was read: files were repaired or replaced."""
        self.shrink(-1)
        self.forget_file()

    def detach(self) -> None:
        """Drop the functions that read and mend the files: with their topic, they would be a reference cycle."""
        self.read_file = LogFile.read
        self.forget_file = do_nothing
        self.mend = None

    def shrink(self, most_bytes: int) -> None:
        """Forget the oldest chunks until at most `most_bytes` are held."""
        left_bytes = self.memory_bytes
        while self._chunks and left_bytes > most_bytes:
            left_bytes -= self._drop_oldest()
        self._count()

    def _drop_oldest(self) -> int:
        first_seq, _ = self._chunks.popitem(last=False)
        return self._sizes.pop(first_seq)

    def _count(self) -> None:
        memory_bytes = sum(self._sizes.values())
        change_bytes = memory_bytes - self.memory_bytes
        self.memory_bytes = memory_bytes
        if self.budget is not None and change_bytes:
            self.budget.note(self, change_bytes)

    def read(self, file: LogFile, seq: int) -> list[Batch]:
        """Return batches of one file from the one that holds `seq`, or the next one. Empty at its end.

        Raises OSError.
        """
        chunk, _, damaged = read_piece(file, seq, partial(self.read_file, file))
        self.pass_over(file, damaged)
        self.remember(chunk)
        return chunk

    def remember(self, chunk: list[Batch]) -> None:
        """Cache a chunk, unless it is empty."""
        if chunk:
            self._chunks[chunk[0].first_seq] = chunk
            self._sizes[chunk[0].first_seq] = sum(batch.memory_bytes for batch in chunk)
            while len(self._chunks) > _SHARED_CHUNKS:
                self._drop_oldest()
            self._count()

    def pass_over(self, file: LogFile, damaged: Iterable[Range]) -> None:
        """Report damaged bytes that a reader skips. Raises OSError if they are being repaired: then read again later."""
        for start, end in damaged:
            if self.mend is not None and self.mend(file, start, end):
                raise OSError(
                    errno.EIO, f"{end - start} damaged bytes of {file.name} at {start} are being repaired"
                )
            self._damage.report(file, start, end)

    def read_each(self, file: LogFile, seqs: Iterable[int]) -> Iterator[Batch | None]:
        """Yield for each of these ascending numbers the batch that holds it; None if it cannot be read. Raises OSError."""
        window = RecordWindow(partial(self.read_file, file), file.end_offset)
        for seq in seqs:
            try:
                batch = window.batch(window.find(file, seq), file.salt)
            except (Damaged, Incomplete):
                yield None
            else:
                yield batch if batch.first_seq <= seq < batch.end_seq else None


# ---- single records, and searches

# Of a record's header: magic, length of the body, first sequence number, count.
_unpack_outline = Struct("<4sI8xQ24xI4x").unpack_from


class RecordWindow:
    """A buffered part of a file that moves with the reads. `end` is the offset at which the last record ends."""

    __slots__ = ("_data", "_end", "_offset", "_read", "_start")

    def __init__(self, read: ReadAt, end: int) -> None:
        self._read = read
        self._end = end
        self._start = 0
        self._offset = 0
        self._data = b""

    def find(self, file: ReadableFile, seq: int) -> int:
        """Return the offset of the first record that ends behind `seq`, or of damage; `seq` must not decrease.

        Skipping a record takes a tenth of the time that decoding its header takes. Raises OSError.
        """
        offset = max(self._offset, file.offset_before(seq))
        while offset < self._end:
            position = self._load(offset, RECORD_HEADER_BYTES)
            data = self._data
            last = len(data) - RECORD_HEADER_BYTES
            if position > last:
                break
            while position <= last:
                magic, length, first_seq, count = _unpack_outline(data, position)
                if magic != MAGIC or first_seq + count > seq:
                    self._offset = self._start + position
                    return self._offset
                position += RECORD_HEADER_BYTES + length
            offset = self._start + position
        self._offset = min(offset, self._end)  # the length of a damaged record may lead beyond the end
        return self._offset

    def header(self, offset: int) -> RecordHeader:
        """Return the header of the record at `offset`. Raises Damaged, Incomplete, OSError."""
        position = self._load(offset, RECORD_HEADER_BYTES)
        return decode_header(self._data, position)

    def batch(self, offset: int, salt: int) -> Batch:
        """Return the batch at `offset`, verified. Raises Damaged, Incomplete, OSError."""
        position = self._load(offset, self.header(offset).record_bytes)
        return decode(self._data, position, salt)[0]

    def headers(self, offset: int) -> Iterator[tuple[int, RecordHeader]]:
        """Yield (offset, header) of the record at `offset` and all behind it. Raises Damaged, Incomplete, OSError."""
        while offset < self._end:
            header = self.header(offset)
            yield offset, header
            offset += header.record_bytes

    def _load(self, offset: int, size: int) -> int:
        """Load `size` bytes from `offset` on, or as many as there are; return their position in the data."""
        position = offset - self._start
        if position < 0 or position + size > len(self._data):
            left = max(0, self._end - offset)
            self._data = self._read(offset, min(max(size, _WINDOW_BYTES), left))
            self._start = offset
            position = 0
        return position


def _offset_before_id(file: ReadableFile, is_later: Callable[[int], bool]) -> int:
    """Return the offset of a record of the index before which no record begins with a later id. Raises OSError."""
    window = RecordWindow(file.read, file.end_offset)

    def begins_later(offset: int) -> bool:
        try:
            return is_later(window.header(offset).base_id)
        except (Damaged, Incomplete):
            return True  # rather too early

    offsets = file.index_offsets
    return offsets[max(0, bisect_left(offsets, True, key=begins_later) - 1)]


def offset_before_id_time(file: LogFile, steady_ns: int) -> int:
    """Return the offset of a record before which all ids are of an earlier time. Raises OSError."""
    return _offset_before_id(file, lambda base_id: id_time_ns(base_id) >= steady_ns)


def first_after_id(file: ReadableFile, message_id: int) -> int | None:
    """Return the number of the first message with a greater id in a file whose ids rise, or None. Raises OSError."""
    offset = _offset_before_id(file, lambda base_id: base_id > message_id)
    reached = file.first_seq
    try:
        for _, record in RecordWindow(file.read, file.end_offset).headers(offset):
            if record.base_id + record.count > message_id + 1:
                return record.first_seq + max(0, message_id + 1 - record.base_id)
            reached = record.end_seq
    except (Damaged, Incomplete):
        return reached  # rather too early
    return None


def first_from(
    file: ReadableFile, offset: int, low: int, matches: Callable[[RecordHeader], bool]
) -> int | None:
    """Return the number of the first message from `low` on that `matches` accepts, reading from `offset`, or None."""
    reached = max(file.first_seq, low)
    try:
        for _, record in RecordWindow(file.read, file.end_offset).headers(offset):
            if record.end_seq > low and matches(record):
                return max(record.first_seq, low)
            reached = max(reached, record.end_seq)
    except (Damaged, Incomplete):
        return reached  # rather too early: what follows may be of that time
    return None


def first_record(file: LogFile) -> RecordHeader | None:
    """Return the header of the first record; None if it cannot be read. Raises OSError."""
    try:
        return RecordWindow(file.read, file.end_offset).header(FILE_HEADER_BYTES)
    except (Damaged, Incomplete):
        return None


# ---- retained records, for readers that are no channel


class RetainedRecords:
    """Whole records for a reader that is no channel, encoded with the salt 0. No message is missing between them.

    next_seq       the number after the last one, where the next read begins
    before_id      greatest id before message `first_seq`, in a log whose ids rise
    damaged_bytes  bytes of the log before the first one that cannot be read
    """

    def __init__(self, seq: int) -> None:
        self.next_seq = seq
        self._asked_seq = seq
        self.before_id = 0
        self._first_seq: int | None = None
        self._records: list[bytes] = []
        self.size_bytes = 0
        self.damaged_bytes = 0

    @property
    def first_seq(self) -> int:
        """The first requested message that the log still has."""
        found_seq = self.next_seq if self._first_seq is None else self._first_seq
        return max(self._asked_seq, found_seq)

    def end(self, end_seq: int, used_id: int) -> None:
        """Note that no more records follow in the log, whose highest id is `used_id`."""
        if self._first_seq is None:
            self.next_seq = max(self.next_seq, end_seq)
            self.before_id = used_id

    def pass_over(self, seq: int, damaged_bytes: int) -> bool:
        """Leave out messages before `seq`, which are missing, and return True; False behind records, which must end there."""
        if seq <= self.next_seq:
            return True
        if self._records:
            return False
        self.next_seq = seq
        self.damaged_bytes += damaged_bytes
        return True

    def add(self, batch: Batch, most_bytes: int) -> bool:
        """Add a batch and return True, unless it exceeds `most_bytes`, or is behind a hole; the first one always fits."""
        record = encode_record(batch, 0)
        is_too_much = self.size_bytes + len(record) > most_bytes or batch.first_seq > self.next_seq
        if self._records and is_too_much:
            return False
        if self._first_seq is None:
            self._first_seq = batch.first_seq
            self.before_id = batch.base_id + self.first_seq - batch.first_seq - 1
        self._records.append(record)
        self.size_bytes += len(record)
        self.next_seq = batch.end_seq
        return True

    def encode(self) -> bytes:
        """Return the records as a log file."""
        first_seq = self.next_seq if self._first_seq is None else self._first_seq
        return b"".join([FileHeader(0, first_seq, 0).encode(), *self._records])


def read_retained_piece(file: LogFile, seq: int, in_thread: ReadInThread) -> Piece:
    """Read a piece of a file in a thread. Raises OSError. Blocks as `in_thread` does."""
    descriptor = file.duplicate()
    try:
        return in_thread(partial(read_piece, file, seq, read_by(descriptor), RETAINED_PIECE_BYTES))
    finally:
        os.close(descriptor)
