"""One file of a topic's log. It is appended to at a known offset, read anywhere, and opened when it is used.

Data is written with `pwritev` at an offset that advances only after a complete write, so that the remains of a failed
write are never read. Space is preallocated in growing steps. On a busy machine, a write into allocated space takes a
third of the time of one that extends the file, and a write over a reused file a sixth.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from nsqd_py.diskqueue.files.open_files import OPEN_FILES, LazyFile
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader, RecordHeader
from nsqd_py.runtime.private_files import MODE, open_file, opened

_NAME = re.compile(r"(?P<topic>.+)\.(?P<seq>\d{20})\.log")
GONE_SUFFIX = ".gone"
SPARE_SUFFIX = ".spare"
COMPACT_SUFFIX = ".compact"
BACK_SUFFIX = ".back"  # a file that a standby gives back, until it is complete
_FIRST_STEP = 16 * 1024  # small: on tmpfs each topic takes this much memory
LARGEST_STEP = 16 * 1024 * 1024
_ZEROS = bytes(256 * 1024)
_SMALL_SYNC_BYTES = 32 * 1024
_MOST_BUFFERS = 1000  # IOV_MAX is 1024
# The most bytes of one call. On a virtual machine with Linux 6.18, calls of 4 to 8 MB took 0.6 to 1.9 ms of system time for
# each MB, those of 1 MB 0.2 to 0.6: 16 publishers of 1 MB got three times as many messages through.
_MOST_BYTES = 1024 * 1024
_JOIN_BELOW = 64 * 1024
INDEX_EVERY = 64 * 1024  # finding a record takes 50 us, and an index has 0.05 % of the bytes of its file

T = TypeVar("T")


# ---- names, and files that are replaced as a whole


def log_file_name(topic: str, first_seq: int) -> str:
    """Return `<topic>.<first sequence number, 20 digits>.log`."""
    return f"{topic}.{first_seq:020d}.log"


@lru_cache(1024)  # a standby asks for the same file with each round: a tenth of its time
def parse_log_file_name(name: str) -> tuple[str, int] | None:
    """Return (topic, first sequence number), or None if it is not the name of a log file."""
    match = _NAME.fullmatch(name)
    return (match["topic"], int(match["seq"])) if match else None


def topic_of_log(name: str) -> str | None:
    """Return the topic of a log file by its name; None if it is not the name of a log file."""
    parsed = parse_log_file_name(name)
    return parsed[0] if parsed is not None else None


def is_log_name(name: str) -> bool:
    """True if this is the name of a log file."""
    return parse_log_file_name(name) is not None


def sync_directory(directory: Path) -> None:
    """Sync the names in a directory. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, is_synced: bool = True, mode: int = MODE) -> None:
    """Replace a file by one with all of `data`, or leave it as it is. Unsynced, a power cut may lose it. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode) as descriptor:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            if is_synced:
                os.fsync(descriptor)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if is_synced:
        sync_directory(path.parent)


def write_whole(fd: int, data: bytes, offset: int, path: Path) -> None:
    """Write all of these bytes to a file. Raises OSError."""
    if os.pwrite(fd, data, offset) != len(data):
        raise OSError(errno.ENOSPC, f"short write to {path.name}")


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end and return its value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)


def new_salt() -> int:
    """Return 32 random bits; importing the module secrets would take 3 ms at the start."""
    return int.from_bytes(os.urandom(4), "big")


# ---- one segment of a log


class Segment(NamedTuple):
    """The bytes and messages between two entries of the index; the messages have numbers in low..high (not included)."""

    low: int
    high: int
    size_bytes: int
    message_count: int


def _groups(buffers: list[bytes], offset: int) -> Iterator[tuple[list[memoryview], int]]:
    """Yield the buffers in groups that one call may write, each with its offset in the file."""
    group: list[memoryview] = []
    group_bytes = 0
    for data in buffers:
        buffer = memoryview(data)
        for start in range(0, len(buffer), _MOST_BYTES):
            part = buffer[start : start + _MOST_BYTES]
            if group_bytes + len(part) > _MOST_BYTES or len(group) == _MOST_BUFFERS:
                yield group, offset
                offset += group_bytes
                group = []
                group_bytes = 0
            group.append(part)
            group_bytes += len(part)
    yield group, offset


class LogFile(LazyFile):
    """A log file, opened when it is used.

    allocated      end of the preallocated space; 0 while the file is closed for lack of use
    end_offset     offset of the next record
    end_seq        first number of the next record
    missing_count  numbers before `end_seq` that are not in the file: damaged, or left out of a sparse file
    newest_ns      latest timestamp in the file, or later
    is_unmovable   True if needed messages in it cannot be read, so that it cannot be compacted
    synced_offset, synced_seq  the end of the synced data
    sync_error     error of the last sync, or None
    most_ahead     most bytes that are preallocated
    writes_zeros   True if space is written too while syncs are small: one of new pages then changes no metadata, and takes
                   125 us instead of 190
    most_bytes     size up to which the file is preallocated
    was_cut        True if another program truncated the file. If it was removed or moved, the broker sets it, with
                   `cut_is_reported`: until then, the file may come back
    is_set_aside   True if its log has removed it, since a write to it failed in a thread
    index_offsets  offsets of some records, about one per 64 KiB, in rising order

    The index has columns of equal length: for the start of a record its offset, a number that is above all numbers
    before it, the count of messages before it, and the latest timestamp before it, or later. Threads may search it while
    the event loop appends to it.
    """

    def __init__(self, path: Path, fd: int, header: FileHeader, allocated: int) -> None:
        super().__init__(path, fd)
        self.header = header
        self.salt = header.salt
        self.end_seq = header.first_seq
        self.end_offset = FILE_HEADER_BYTES
        self.sync_error: OSError | None = None
        self.synced_offset = 0
        self.synced_seq = header.first_seq
        self.most_ahead = LARGEST_STEP
        self.writes_zeros = False
        self.most_bytes = sys.maxsize
        self.allocated = allocated
        self._allocated_when_closed = 0
        self._clean_offset = 0
        self.missing_count = 0
        self.is_unmovable = False
        self.newest_ns = 0
        self._place = ""  # the real path at which `is_cut` has seen it
        self.was_cut = False
        self.cut_is_reported = False
        self.is_set_aside = False
        self.index_offsets = array("Q", [FILE_HEADER_BYTES])
        self._index_counts = array("Q", [0])
        self._index_newest_ns = array("q", [0])
        self._index_seqs = array("Q", [header.first_seq])

    @classmethod
    def creating(
        cls, path: Path, header: FileHeader, spare: Path | None = None
    ) -> Generator[None, None, LogFile]:
        """Return a new file, made from the used file `spare` if given, in steps: one for each call that may be slow.

        Raises OSError, and FileExistsError if there is a file of this name, which is not overwritten.
        """
        if spare is not None and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        flags = os.O_RDWR | os.O_CREAT
        if spare is None:
            flags |= os.O_EXCL
        try:
            fd = OPEN_FILES.with_room(lambda: open_file(spare or path, flags))
        except FileExistsError:
            raise
        except BaseException:
            # What this may have left: a file without a header would keep the next one from its name.
            with contextlib.suppress(OSError):
                if not os.stat(path).st_size:
                    path.unlink()
            raise
        try:
            yield
            if os.pwrite(fd, header.encode(), 0) != FILE_HEADER_BYTES:
                raise OSError(errno.ENOSPC, "short write of a log file's header")
            if spare is not None:
                yield
                os.rename(spare, path)
            return cls(path, fd, header, os.fstat(fd).st_size)
        except BaseException:
            os.close(fd)
            if spare is None:  # an empty file would be reported as damaged at the next start
                with contextlib.suppress(OSError):
                    path.unlink()
            raise

    @classmethod
    def open(cls, path: Path, flags: int = os.O_RDWR) -> LogFile:
        """Open an existing file and read its header. Raises OSError and Damaged."""
        fd = OPEN_FILES.with_room(lambda: open_file(path, flags))
        try:
            header = FileHeader.decode(os.pread(fd, FILE_HEADER_BYTES, 0))
            file = cls(path, fd, header, os.fstat(fd).st_size)
        except BaseException:
            os.close(fd)
            raise
        file.flags = flags
        file.mark_clean()
        OPEN_FILES.add(file)
        return file

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def first_seq(self) -> int:
        return self.header.first_seq

    @property
    def is_whole(self) -> bool:
        """True if the file has all published messages: it is neither sparse nor imported."""
        return not (self.header.is_sparse or self.header.is_imported)

    @property
    def message_count(self) -> int:
        return self.end_seq - self.header.first_seq - self.missing_count

    def append(self, buffers: list[bytes], size: int, end_seq: int) -> None:
        """Append records of `size` bytes in total. Raises OSError; then the file has no more records than before."""
        self.put(buffers, size)
        self.note_put(size, end_seq)

    def put(self, buffers: list[bytes], size: int) -> None:
        """Write records of `size` bytes behind the last one, where no one reads before `note_put`. May run in a thread.

        Raises OSError; then the file ends where it did.
        """
        self.allocate(size)
        offset = self.end_offset
        try:
            if size < _JOIN_BELOW:
                written = os.pwrite(self._fd, b"".join(buffers), offset)
            else:
                written = sum(os.pwritev(self._fd, group, at) for group, at in _groups(buffers, offset))
            if written != size:
                raise OSError(errno.ENOSPC, f"only {written} of {size} bytes could be written")
        except BaseException:
            self.cut()
            raise

    def note_put(self, size: int, end_seq: int) -> None:
        """Count the records that `put` has written as records of the file; the event loop does that."""
        offset = self.end_offset
        if offset - self.index_offsets[-1] >= INDEX_EVERY:
            self._add_to_index(offset)
        self.end_offset = offset + size
        self.end_seq = end_seq

    def append_record(self, record: bytes, end_seq: int) -> None:
        """Append one record. Raises OSError; then the file has no more records than before."""
        offset = self.end_offset
        after = offset + len(record)
        if after > self.allocated or (
            offset >= INDEX_EVERY and offset - self.index_offsets[-1] >= INDEX_EVERY
        ):
            self.append([record], len(record), end_seq)
            return
        try:
            if os.pwrite(self._fd, record, offset) != after - offset:
                raise OSError(errno.ENOSPC, "short write of a record")
        except BaseException:
            self.cut()
            raise
        self.end_offset = after
        self.end_seq = end_seq

    def wants_space(self, size: int) -> bool:
        """True if space must be allocated, or the file opened, before `size` more bytes are written."""
        return self.end_offset + size > self.allocated and (self.most_ahead > 0 or self._fd < 0)

    def allocate(self, size: int) -> None:
        """Preallocate space for `size` more bytes, and some beyond, in steps that grow with the file."""
        needed = self.end_offset + size
        if needed <= self.allocated:
            return
        fd = self.fileno()
        self.is_cut()  # a write hides it
        if needed <= self.allocated or not self.most_ahead:
            return
        step = min(max(self.end_offset, _FIRST_STEP), self.most_ahead)
        target = max(needed, min(needed + step, self.most_bytes))
        are_syncs_small = needed - max(self.synced_offset, self._clean_offset) <= _SMALL_SYNC_BYTES
        # Full disk, or a file system without preallocation: the write itself will report an error.
        with contextlib.suppress(OSError):
            if not (self.writes_zeros and are_syncs_small and target > needed):
                os.posix_fallocate(fd, self.allocated, target - self.allocated)
                self.allocated = target
            elif written := os.pwrite(fd, _ZEROS[: target - needed], needed):  # the record comes before it
                self.allocated = needed + written

    def cut(self) -> None:
        """Truncate the file behind the last record: preallocated space, and remains of a failed write."""
        if self._fd < 0 and self._allocated_when_closed <= self.end_offset:
            return
        with contextlib.suppress(OSError):
            self.is_cut()
            fd = self.fileno()
            # Before: another thread that finds the file shorter than this calls it cut.
            self.allocated = self.end_offset
            os.ftruncate(fd, self.end_offset)

    def is_cut(self) -> bool:
        """True if another program truncated the file, or if its name is that of no file, or of another one.

        The event loop and the thread that writes may both ask: `was_cut` is only ever set.
        """
        if self.is_surely_whole():
            return False
        least_bytes = self._least_bytes
        try:
            place = self._read_place() if self.is_open else ""  # before the check that it is there
            named = os.stat(self.path)
            if self.is_open and not os.path.samestat(named, os.fstat(self._fd)):
                return True
        except OSError:
            return True
        if named.st_size < min(least_bytes, self._least_bytes):
            self.was_cut = True
        elif place.endswith(f"/{self.path.name}"):
            self._place = place
        return self.was_cut

    def _read_place(self) -> str:
        """Return where the open file is by now: its real path, which a link or a mount may hide; "" without /proc."""
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/self/fd/{self._fd}")
        return ""

    @property
    def _least_bytes(self) -> int:
        """The size below which the file is cut. The thread that writes raises it after it has allocated space, and lowers
        it before it truncates: compare a size with the lower one of before and after.
        """
        return max(self.end_offset, self.allocated)

    def is_surely_whole(self) -> bool:
        """True if the open file has its full length, and is where `is_cut` has seen it under its name.

        False also where /proc does not say. A mount over the directory is not seen: `DataPath` finds it.

        Since Linux 6.13, each fstat makes the next write change the times of the file: its fdatasync took 180 us, not 120.
        """
        if self.was_cut or self._fd < 0:
            return False
        try:
            is_long = os.lseek(self._fd, 0, os.SEEK_END) >= self._least_bytes
            return is_long and os.readlink(f"/proc/self/fd/{self._fd}") == self._place
        except OSError:
            return False

    # ---- open or not

    @property
    def modified_s(self) -> float:
        """The time of the last write. Raises OSError."""
        return (os.fstat(self._fd) if self.is_open else os.stat(self.path)).st_mtime

    @property
    def has_one_name(self) -> bool:
        """False if the file has another hard link, as those that a standby sets aside, or no name any more."""
        try:
            return os.stat(self.path).st_nlink == 1
        except OSError:
            return False

    def mark_clean(self) -> None:
        """Note that nothing written through this descriptor waits for a sync."""
        self._clean_offset = self.end_offset

    def _may_close(self) -> bool:
        return self.sync_error is None and self.end_offset <= max(self.synced_offset, self._clean_offset)

    def close_for_now(self) -> bool:
        # Its content may be nowhere else, or at an unknown place.
        if self.is_open and self.is_cut():
            return False
        if not super().close_for_now():
            return False
        # A write then finds no space, and opens the file to allocate some: writes to open files need no extra check.
        self._allocated_when_closed = self.allocated
        self.allocated = 0
        return True

    def check(self, fd: int) -> None:
        if os.pread(fd, FILE_HEADER_BYTES, 0) != self.header.encode():
            raise OSError(errno.ESTALE, "the file was replaced by another one", str(self.path))

    def reopen_with(self, fd: int) -> None:
        super().reopen_with(fd)
        self.allocated = self._allocated_when_closed

    # ---- what is known of it

    def _add_to_index(self, offset: int) -> None:
        self.index_offsets.append(offset)
        self._index_counts.append(self.message_count)
        self._index_newest_ns.append(self.newest_ns)
        self._index_seqs.append(self.end_seq)  # the last one: it is what a thread searches

    def go_on(self, record: RecordHeader, offset: int) -> None:
        """Add the record at `offset` to what is known of the file; it was found there, or written without `append`."""
        self.missing_count += record.first_seq - self.end_seq
        self.end_seq = record.first_seq
        if offset - self.index_offsets[-1] >= INDEX_EVERY:
            self._add_to_index(offset)
        self.newest_ns = max(self.newest_ns, record.timestamp_ns)
        self.end_seq = record.end_seq
        self.end_offset = offset + record.record_bytes

    def offset_before(self, seq: int) -> int:
        """Return the offset of a record at or before `seq`."""
        return self.index_offsets[max(0, bisect_right(self._index_seqs, seq) - 1)]

    def readable_from(self, seq: int) -> int:
        """Return a number behind `seq` at which reading can begin without reading what is before."""
        at = bisect_right(self._index_seqs, seq)
        if at < len(self._index_seqs):
            return self._index_seqs[at]
        return self.end_seq

    def offset_before_time(self, timestamp_ns: int) -> int:
        """Return the offset of a record at or before the first message of this time or later."""
        return self.index_offsets[max(0, bisect_left(self._index_newest_ns, timestamp_ns) - 1)]

    def segments(self) -> Iterator[Segment]:
        """Yield the parts of the file, about 64 KiB each."""
        end = self.end_seq, self.end_offset, self.message_count
        entries = [*zip(self._index_seqs, self.index_offsets, self._index_counts, strict=True), end]
        for (low, low_offset, low_count), (high, high_offset, high_count) in pairwise(entries):
            yield Segment(low, high, high_offset - low_offset, high_count - low_count)

    def mark_synced(self) -> None:
        """Note that all of it is on the disk."""
        self.synced_offset = self.end_offset
        self.synced_seq = self.end_seq

    def twin(self) -> LogFile:
        """Return a second object for the file, with another descriptor, to be extended while this one is read.

        Raises OSError.
        """
        return self.same_as(self.duplicate())

    def same_as(self, fd: int) -> LogFile:
        """Return an object for another descriptor whose file has the same content."""
        twin = LogFile(self.path, fd, self.header, self.end_offset)
        twin.end_offset = self.end_offset
        twin.end_seq = self.end_seq
        twin.missing_count = self.missing_count
        twin.newest_ns = self.newest_ns
        twin.synced_offset = self.synced_offset
        twin.synced_seq = self.synced_seq
        twin._clean_offset = self._clean_offset
        twin.index_offsets = self.index_offsets[:]
        twin._index_counts = self._index_counts[:]
        twin._index_newest_ns = self._index_newest_ns[:]
        twin._index_seqs = self._index_seqs[:]
        return twin

    def _begin_copy(self) -> tuple[Path, int]:
        """Return the path and the descriptor of an empty file, for a copy that gets the name of this one. Raises OSError."""
        temporary = self.path.with_name(self.path.name + COMPACT_SUFFIX)
        return temporary, open_file(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def _pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield what the open descriptor gives, with its offsets. Raises OSError."""
        for offset in range(0, self.end_offset, _MOST_BYTES):
            yield offset, os.pread(self._fd, min(_MOST_BYTES, self.end_offset - offset), offset)

    def write_back(self) -> LogFile:
        """Return the file that gets the name and the content of this one, which another program has removed or moved.

        Its descriptor must be open, and nothing may be appended to it. The new file is durable. May run in a thread.
        Raises OSError, and FileExistsError if there is a file of this name.
        """
        if os.path.lexists(self.path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.path))
        temporary, fd = self._begin_copy()
        try:
            for offset, piece in self._pieces():
                if not piece or os.pwrite(fd, piece, offset) != len(piece):
                    raise OSError(errno.EIO, "the descriptor does not give all of it back", str(self.path))
            os.fsync(fd)
            os.link(temporary, self.path)  # in contrast to a rename, it replaces nothing
            sync_directory(self.path.parent)
        except BaseException:
            os.close(fd)
            raise
        finally:
            temporary.unlink(missing_ok=True)
        restored = self.same_as(fd)
        restored.mark_synced()
        return restored

    def write_header(self) -> None:
        """Write the header again, since it is damaged. Raises OSError."""
        with opened(self.path, os.O_RDWR) as fd:
            write_whole(fd, self.header.encode(), 0, self.path)

    def salvage(self) -> tuple[Path, int]:
        """Write what the descriptor still gives to a temporary file of the length of this one.

        Return its path, and a descriptor. What is missing is zeros. May run in a thread. Raises OSError.
        """
        temporary, fd = self._begin_copy()
        try:
            if self.is_open:
                for offset, piece in self._pieces():
                    write_whole(fd, piece, offset, temporary)
            write_whole(fd, self.header.encode(), 0, temporary)
            os.ftruncate(fd, self.end_offset)
        except BaseException:
            os.close(fd)
            temporary.unlink(missing_ok=True)
            raise
        return temporary, fd

    # ---- reading

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes, none behind the last record. Raises OSError."""
        return os.pread(self.fileno(), min(size, self.end_offset - offset), offset)

    # ---- the end

    def discard(self) -> Callable[[], None]:
        """Rename the file, and return a call that deletes it, which may take 20 ms.

        Raises OSError; then the file is unchanged.
        """
        gone = self.path.with_name(self.path.name + GONE_SUFFIX)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.path, gone)

        def finish() -> None:
            gone.unlink(missing_ok=True)
            self.close()

        return finish

    def retire(self, spare: Path) -> None:
        """Close, and keep the space as `spare` for the next file. Raises OSError; then the file is unchanged."""
        os.rename(self.path, spare)
        self.close()
