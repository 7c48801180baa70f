"""Reading a log beyond the disk: from its files in a store, such as a bucket.

A `History` knows the stored files of one log and reads their bytes; where these are is its business. `HistoryFile` is one of
them for the code that reads a `LogFile`: same records, same checks. A stored file has no index, so the offset of a record
is found by bisection: the first record of each block of 1 MiB that it comes to is found by its checksum.

Reading blocks, perhaps for long. `LogHistory` has it done by `read_piece` for channels, which must not wait, and by `in_thread`
for greenlets, which may.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from time import sleep
from typing import NamedTuple, Protocol, TypeVar

from nsqd_py.diskqueue.checking import next_valid
from nsqd_py.diskqueue.damage import DamageReport
from nsqd_py.diskqueue.journals.ranges import Range, union
from nsqd_py.diskqueue.reading import (
    READ_BYTES,
    ChunkReader,
    FileRange,
    Piece,
    first_after_id,
    first_from,
    read_piece,
)
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, decode_header
from nsqd_py.protocol.batch import Batch
from nsqd_py.protocol.message_ids import id_time_ns

BLOCK_BYTES = 1024 * 1024
_MOST_FILES = 64  # whose blocks are remembered: 100 numbers for each file of 100 MB
_MOST_ENDS = 64

T = TypeVar("T")

_first_seq_of = attrgetter("first_seq")


class StoredSegment(FileRange, Protocol):
    """A stored log file. Its name is unique, also among those that it replaces.

    first_ns  the timestamp of its first message
    first_id, last_id  the lowest and the highest id in it
    last_ns   the latest timestamp in it
    is_whole  as of a `LogFile`: it has all published messages of its range
    """

    @property
    def size_bytes(self) -> int: ...
    @property
    def first_ns(self) -> int: ...
    @property
    def first_id(self) -> int: ...
    @property
    def last_id(self) -> int: ...
    @property
    def last_ns(self) -> int: ...
    @property
    def is_whole(self) -> bool: ...


class History(Protocol):
    """The stored files of one log."""

    def segments(self) -> Sequence[StoredSegment]:
        """Return the files, by rising first and last numbers. The sequence is replaced when it changes, and not changed."""

    def read_at(self, name: str, size_bytes: int, offset: int, size: int) -> bytes:
        """Return exactly these bytes of the file of this name and size.

        Blocks; threads call it. Raises OSError, which says what the store said; FileNotFoundError if the store answers that
        it does not have the file.
        """


ReadStored = Callable[[str, int, int, int], bytes]
IsOnDisk = Callable[[int, int], bool]  # (low, high): True if one whole local file has all of these messages


class InThread(Protocol):
    def __call__(self, work: Callable[[], T], /, on_ended: Callable[[], None] = ...) -> T:
        """Return what `work` returns in a thread. Raises its error, and TimeoutError if the store hangs.

        Then `work` goes on without the greenlet. `on_ended` is called once, when no thread uses what `work` uses.
        """


# ---- one file


class _RecordStart(NamedTuple):
    offset: int
    first_seq: int


class HistoryFile:
    """A stored file for readers. Its methods block, unless they say otherwise, and raise OSError. Threads may share it."""

    __slots__ = ("_ends", "_read_at", "_starts", "end_offset", "end_seq", "first_seq", "name", "salt")

    def __init__(self, segment: StoredSegment, read_at: ReadStored) -> None:
        self.name = segment.name
        self.first_seq = segment.first_seq
        self.end_seq = segment.end_seq
        self.end_offset = segment.size_bytes
        self.salt = segment.salt
        self._read_at = read_at
        self._starts = {0: _RecordStart(FILE_HEADER_BYTES, segment.first_seq)}  # by number of the block
        self._ends: dict[int, int] = {}  # of what was read: the offset by the number that comes next

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes, none behind the last record."""
        # As a read of the disk, also of bytes that are cached, it lets the event loop run: a search reads 64 KiB at a time.
        sleep(0)
        size = min(size, self.end_offset - offset)
        if size > 0:
            return self._read_at(self.name, self.end_offset, offset, size)
        return b""

    @property
    def index_offsets(self) -> Sequence[int]:
        """The offset of the first record in each block; each is found when it is asked for."""
        return _BlockOffsets(self)

    def offset_before(self, seq: int) -> int:
        """Return the offset of a record at or before `seq`."""
        known = self._ends.get(seq)
        if known is not None:
            return known
        if seq <= self.first_seq:
            return FILE_HEADER_BYTES
        blocks = range(self.block_count)
        block = bisect_right(blocks, seq, key=lambda block: self.start_in(block).first_seq) - 1
        return self.start_in(max(0, block)).offset

    def note_end(self, seq: int, offset: int) -> None:
        """Remember where a reader goes on, so that the next read needs no search. Does not block."""
        if len(self._ends) >= _MOST_ENDS:
            self._ends = {}
        self._ends[seq] = offset

    @property
    def block_count(self) -> int:
        return max(1, -(-self.end_offset // BLOCK_BYTES))

    def start_in(self, block: int) -> _RecordStart:
        """Return the first valid record from the start of a block on; the end of the file if there is none."""
        start = self._starts.get(block)
        if start is None:
            start = self._find_start(block * BLOCK_BYTES)
            self._starts[block] = start
        return start

    def _find_start(self, offset: int) -> _RecordStart:
        found = next_valid(self.read, self.salt, offset, self.end_offset)
        if found >= self.end_offset:
            return _RecordStart(self.end_offset, self.end_seq)
        header = decode_header(self.read(found, RECORD_HEADER_BYTES), 0)
        return _RecordStart(found, header.first_seq)


class _BlockOffsets(Sequence[int]):
    """The offsets of the first records in the blocks of a file."""

    def __init__(self, file: HistoryFile) -> None:
        self._file = file

    def __len__(self) -> int:
        return self._file.block_count

    def __getitem__(self, block: int) -> int:  # type: ignore[override]  # no one takes slices
        return self._file.start_in(block).offset


def read_stored_piece(file: HistoryFile, seq: int, most_bytes: int = READ_BYTES) -> Piece:
    """Read a piece of a stored file, as `read_piece` does. Blocks. Raises OSError."""
    piece = read_piece(file, seq, file.read, most_bytes, is_stored=True)
    if piece.batches:
        file.note_end(piece.batches[-1].end_seq, piece.offset)
    return piece


def missing_piece(file: HistoryFile) -> Piece:
    """Return what a reader gets of a file that the store has lost: no messages, and all of it damaged."""
    return Piece([], file.end_offset, [(0, file.end_offset)])


# ---- the stored files of one log


def _at_once(work: Callable[[], T], on_ended: Callable[[], None] = lambda: None) -> T:
    try:
        return work()
    finally:
        on_ended()


class LogHistory:
    """The stored files of one log, for that log. The event loop has it.

    read_piece  reads a piece of a file, like `read_stored_piece`; may raise BlockingIOError: retry later
    in_thread   runs a call in a thread while this greenlet waits; see `InThread`
    chunks      caches what channels read
    problem     why the store did not answer at the last attempt; "" if it did
    missing     names of the files that the store has lost; readers pass over them
    damaged     names of the files of which readers have passed over something
    """

    def __init__(self, stored: History, damage: DamageReport) -> None:
        self.chunks = ChunkReader(damage)
        self.read_piece: Callable[[HistoryFile, int], Piece] = read_stored_piece
        self.in_thread: InThread = _at_once
        self.problem = ""
        self.missing: set[str] = set()
        self.damaged: set[str] = set()
        self._stored = stored
        self._damage = damage
        self._files: OrderedDict[str, HistoryFile] = OrderedDict()
        self._earliest: tuple[Sequence[StoredSegment], int] = ((), 0)

    # ---- which files there are

    @property
    def segments(self) -> Sequence[StoredSegment]:
        return self._stored.segments()

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def reaching(self, seq: int) -> Iterator[StoredSegment]:
        """Yield the files with messages from `seq` on."""
        segments = self.segments
        index = max(0, bisect_right(segments, seq, key=_first_seq_of) - 1)
        return (segments[at] for at in range(index, len(segments)) if segments[at].end_seq > seq)

    def covering(self, seq: int) -> StoredSegment | None:
        """Return the file whose range has this number, or None."""
        segment = next(self.reaching(seq), None)
        if segment is not None and segment.first_seq <= seq:
            return segment
        return None

    def has_all(self, low: int, high: int) -> bool:
        """True if whole files have all of low..high (not included)."""
        for segment in self.reaching(low):
            if low >= high or segment.first_seq > low or not segment.is_whole:
                break
            low = segment.end_seq
        return low >= high

    def ranges(self) -> list[Range]:
        """Return the numbers that stored files have, in rising order."""
        return union((segment.first_seq, segment.end_seq) for segment in self.segments)

    def earliest_before(self, seq: int) -> int:
        """Return the number from which on whole files have all that is before `seq`, or `seq`."""
        segments = self.segments
        known, earliest = self._earliest
        if known is not segments:
            earliest = _earliest_whole(segments)
            self._earliest = segments, earliest
        return min(earliest, seq) if segments else seq

    def file_of(self, segment: StoredSegment) -> HistoryFile:
        """Return the file for reading."""
        name = segment.name
        file = self._files.get(name)
        if file is None:
            file = HistoryFile(segment, self._stored.read_at)
            self._files[name] = file
            if len(self._files) > _MOST_FILES:
                self._files.popitem(last=False)
        self._files.move_to_end(name)
        return file

    # ---- channels

    def remembered(self, seq: int) -> list[Batch] | None:
        """Return a cached chunk that has the message, or None."""
        chunk = self.chunks.remembered(seq)
        if chunk is not None and has_message(chunk, seq):
            return chunk
        return None

    def read(self, seq: int, before: int) -> list[Batch]:
        """Return batches from the one that holds `seq`, or the next one, if it begins before `before`; else nothing.

        Raises BlockingIOError while a thread reads them, or while the store does not answer.
        """
        for segment in self.reaching(seq):
            if segment.first_seq >= before:
                break
            chunk = self._take(self.file_of(segment), self.read_piece, seq)
            if chunk and chunk[0].first_seq < before:
                return chunk
        return []

    def load(self, seq: int) -> None:
        """Read the chunk with this message, if a stored file has it. Blocks this greenlet. Raises OSError."""
        segment = self.covering(seq)
        if segment is not None and self.remembered(seq) is None:
            self._take(self.file_of(segment), self.read_now, seq)

    def _take(self, file: HistoryFile, read: Callable[[HistoryFile, int], Piece], seq: int) -> list[Batch]:
        chunk, _, damaged = read(file, max(seq, file.first_seq))
        self.pass_over(file, damaged)
        self.chunks.remember(chunk)
        return chunk

    def pass_over(self, file: HistoryFile, damaged: Iterable[Range]) -> None:
        """Report damaged bytes that a reader skips."""
        for start, end in damaged:
            self.damaged.add(file.name)
            self._damage.report_stored(file.name, start, end)

    # ---- greenlets

    def read_now(self, file: HistoryFile, seq: int, most_bytes: int = READ_BYTES) -> Piece:
        """Read a piece in a thread. Blocks this greenlet. Raises OSError."""
        try:
            return self.in_thread(partial(read_stored_piece, file, seq, most_bytes))
        except FileNotFoundError:
            if file.name not in self.missing:
                raise
            return missing_piece(file)

    def seq_at(self, timestamp_ns: int, low: int, before: int, is_on_disk: IsOnDisk) -> int:
        """Return the number of the first message from `low` on that was published then or later, or `before`.

        Files that begin at `before` or later, or are on the disk too, are not searched. A wall clock may have stepped back,
        so the file that has the time is read from its start. Blocks this greenlet. Raises OSError.
        """

        def first_in(file: HistoryFile) -> int | None:
            offset = file.offset_before(low)
            return first_from(file, offset, low, lambda record: record.timestamp_ns >= timestamp_ns)

        newer = (segment for segment in self.reaching(low) if segment.last_ns >= timestamp_ns)
        return self._first(newer, first_in, before, is_on_disk)

    def seq_after_id(self, message_id: int, low: int, before: int, is_on_disk: IsOnDisk) -> int:
        """Return the number of the first message from `low` on with a greater id, or `before`, as `seq_at`; ids must rise."""
        later = (segment for segment in self.reaching(low) if segment.last_id > message_id)
        return self._first(later, lambda file: first_after_id(file, message_id), before, is_on_disk)

    def _first(
        self,
        segments: Iterable[StoredSegment],
        first_in: Callable[[HistoryFile], int | None],
        before: int,
        is_on_disk: IsOnDisk,
    ) -> int:
        for segment in segments:
            if segment.first_seq >= before:
                break
            if is_on_disk(segment.first_seq, segment.end_seq):
                continue
            found = self.in_thread(partial(first_in, self.file_of(segment)))
            if found is not None:
                return min(found, before)
        return before

    def published_since(self, steady_ns: int, low: int, before: int, is_on_disk: IsOnDisk) -> int:
        """Return a number from `low` on before which all messages were published before that time; `before` if all were.

        It is the first number of a file, since nothing is read.
        """
        for segment in self.reaching(low):
            if segment.first_seq >= before:
                break
            is_young = max(id_time_ns(segment.last_id), segment.last_ns) >= steady_ns
            if is_young and not is_on_disk(segment.first_seq, segment.end_seq):
                return max(low, segment.first_seq)
        return before


def _earliest_whole(segments: Sequence[StoredSegment]) -> int:
    """Return the first number of the first file from which on all files are whole."""
    earliest = segments[-1].end_seq if segments else 0
    for segment in reversed(segments):
        if not segment.is_whole:
            break
        earliest = segment.first_seq
    return earliest


def has_message(chunk: Sequence[Batch], seq: int) -> bool:
    """True if a batch of these has the message with this number."""
    at = bisect_right(chunk, seq, key=_first_seq_of) - 1
    return at >= 0 and seq < chunk[at].end_seq
