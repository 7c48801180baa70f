"""One file of a topic's log: appended to at a known place, read anywhere. It is opened when it is used.

Data is written with `pwritev` at an offset that only moves when all of it was taken, so that what a failed
write left behind is never read. Space is allocated ahead in growing steps: on a busy machine a write into
allocated space takes a third of one that extends the file, and a write over a used file a sixth.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

from nsqd_py.diskqueue.file_index import INDEX_EVERY, FileIndex, Place, Segment
from nsqd_py.diskqueue.open_files import OPEN_FILES, OnDemand
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader, RecordHeader

_NAME = re.compile(r"(?P<topic>.+)\.(?P<seq>\d{20})\.log")
GONE_SUFFIX = ".gone"
SPARE_SUFFIX = ".spare"
COMPACT_SUFFIX = ".compact"
_FIRST_STEP = 16 * 1024  # of the memory, where the data path is on tmpfs: each topic takes it
LARGEST_STEP = 16 * 1024 * 1024
_MOST_BUFFERS = 1000  # IOV_MAX is 1024
_JOIN_BELOW = 64 * 1024

T = TypeVar("T")


def log_file_name(topic: str, first_seq: int) -> str:
    """`<topic>.<first sequence number, 20 digits>.log`"""
    return f"{topic}.{first_seq:020d}.log"


def parse_log_file_name(name: str) -> tuple[str, int] | None:
    """(topic, first sequence number), or None for a file of another kind."""
    match = _NAME.fullmatch(name)
    return (match["topic"], int(match["seq"])) if match else None


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Do all steps, and return what the last one gives."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)


def _salt() -> int:
    """Return 32 random bits; the module secrets would import the hashes of OpenSSL, 3 ms, at the start."""
    return int.from_bytes(os.urandom(4), "big")


class LogFile(OnDemand):
    """A log file, opened when it is used.

    end_offset     where the next record goes
    end_seq        the number it begins with
    missing_count  numbers before that which are not in the file: damaged, or of no use in a sparse file
    newest_ns      no message in it is younger
    is_unmovable   something in it that is needed cannot be read: it stays as it is
    synced_offset, synced_seq  the end of what a sync has brought to the disk
    sync_error     why the last one failed; None when it did not
    most_ahead     how many bytes may be allocated ahead
    most_bytes     up to which size of the file
    """

    __slots__ = (
        "_allocated", "_allocated_at_rest", "_clean_offset", "_index", "_index_offsets", "end_offset", "end_seq",
        "header", "is_unmovable", "missing_count", "most_ahead", "most_bytes", "newest_ns", "salt", "sync_error",
        "synced_offset", "synced_seq",
    )  # fmt: skip

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
        self.most_bytes = sys.maxsize
        self._allocated = allocated
        self._allocated_at_rest = 0
        self._clean_offset = 0
        self.missing_count = 0
        self.is_unmovable = False
        self.newest_ns = 0
        self._index = FileIndex(header.first_seq, FILE_HEADER_BYTES)
        self._index_offsets = self._index.offsets

    @classmethod
    def create(cls, path: Path, first_seq: int, used_id: int, spare: Path | None = None) -> LogFile:
        """Return a new file, made of a used one when there is a spare. Raises OSError.

        FileExistsError where a file of this name is there: somebody put it there, and it is not written over.
        """
        return run_to_end(cls.creating(path, first_seq, used_id, spare))

    @classmethod
    def creating(
        cls, path: Path, first_seq: int, used_id: int, spare: Path | None
    ) -> Generator[None, None, LogFile]:
        """As `create`, a step for each call that may take long."""
        header = FileHeader(_salt(), first_seq, used_id, is_reused=spare is not None)
        if spare is not None and os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        flags = os.O_RDWR | os.O_CREAT | (os.O_EXCL if spare is None else 0)
        fd = OPEN_FILES.with_room(lambda: os.open(spare or path, flags, 0o600))
        try:
            yield
            if os.pwrite(fd, header.encode(), 0) != FILE_HEADER_BYTES:
                raise OSError("short write of a log file's header")
            if spare is not None:
                yield
                os.rename(spare, path)
            return cls(path, fd, header, os.fstat(fd).st_size)
        except OSError:
            os.close(fd)
            if spare is None:  # an empty file would be reported as damaged at the next start
                with contextlib.suppress(OSError):
                    path.unlink()
            raise

    @classmethod
    def create_sparse(cls, path: Path, old: LogFile) -> LogFile:
        """An empty file for what is needed of an old one. Raises OSError."""
        header = replace(old.header, salt=_salt(), is_reused=False, is_sparse=True)
        fd = OPEN_FILES.with_room(lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
        try:
            if os.pwrite(fd, header.encode(), 0) != FILE_HEADER_BYTES:
                raise OSError(errno.ENOSPC, "short write of a log file's header")
            return cls(path, fd, header, FILE_HEADER_BYTES)
        except OSError:
            os.close(fd)
            raise

    @classmethod
    def open(cls, path: Path) -> LogFile:
        """An existing file, of which nothing is known yet but its header. Raises OSError and Damaged."""
        fd = OPEN_FILES.with_room(lambda: os.open(path, os.O_RDWR))
        try:
            header = FileHeader.decode(os.pread(fd, FILE_HEADER_BYTES, 0))
            file = cls(path, fd, header, os.fstat(fd).st_size)
        except BaseException:
            os.close(fd)
            raise
        file.mark_clean()
        OPEN_FILES.add(file)
        return file

    @property
    def first_seq(self) -> int:
        return self.header.first_seq

    @property
    def is_whole(self) -> bool:
        """It has all that was published: not only what was needed still, not what another program left."""
        return not (self.header.is_sparse or self.header.is_imported)

    @property
    def message_count(self) -> int:
        return self.end_seq - self.header.first_seq - self.missing_count

    def append(self, buffers: list[bytes], size: int, end_seq: int) -> None:
        """Write records of `size` bytes in all behind the last. Raises OSError; then the file is as it was."""
        self.allocate(size)
        offset = self.end_offset
        try:
            if size < _JOIN_BELOW or len(buffers) > _MOST_BUFFERS:
                written = os.pwrite(self._fd, b"".join(buffers), offset)
            else:
                written = os.pwritev(self._fd, buffers, offset)
            if written != size:
                raise OSError(errno.ENOSPC, f"only {written} of {size} bytes could be written")
        except OSError:
            self.cut()
            raise
        if offset - self._index_offsets[-1] >= INDEX_EVERY:
            self._index.append(self._end)
        self.end_offset = offset + size
        self.end_seq = end_seq

    def append_record(self, record: bytes, end_seq: int) -> None:
        """Write one record behind the last. Raises OSError; then the file is as it was."""
        offset = self.end_offset
        after = offset + len(record)
        if after > self._allocated or offset - self._index_offsets[-1] >= INDEX_EVERY:
            self.append([record], len(record), end_seq)
            return
        try:
            if os.pwrite(self._fd, record, offset) != after - offset:
                raise OSError(errno.ENOSPC, "a record could be written in part only")
        except OSError:
            self.cut()
            raise
        self.end_offset = after
        self.end_seq = end_seq

    def wants_space(self, size: int) -> bool:
        """True when space is to be allocated, or the file opened, before `size` bytes more are written."""
        return self.end_offset + size > self._allocated and (self.most_ahead > 0 or self._fd < 0)

    def allocate(self, size: int) -> None:
        """Reserve space for `size` bytes more, and some behind them, in steps that grow with the file."""
        needed = self.end_offset + size
        if needed <= self._allocated:
            return
        fd = self.fileno()
        if needed <= self._allocated or not self.most_ahead:
            return
        step = min(max(self.end_offset, _FIRST_STEP), self.most_ahead)
        wanted = max(needed, min(needed + step, self.most_bytes))
        # Full disk, or a file system that cannot: the write itself will say.
        with contextlib.suppress(OSError):
            os.posix_fallocate(fd, self._allocated, wanted - self._allocated)
            self._allocated = wanted

    def cut(self) -> None:
        """Give back what is allocated, or left of a failed write, behind the last record."""
        if self._fd < 0 and self._allocated_at_rest <= self.end_offset:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self.fileno(), self.end_offset)
            self._allocated = self.end_offset

    # ---- open or not

    @property
    def modified_s(self) -> float:
        """When it was written to last. Raises OSError."""
        return (os.fstat(self._fd) if self.is_open else os.stat(self.path)).st_mtime

    def mark_clean(self) -> None:
        """Nothing that was written through this descriptor waits for a sync."""
        self._clean_offset = self.end_offset

    def _may_rest(self) -> bool:
        return self.sync_error is None and self.end_offset <= max(self.synced_offset, self._clean_offset)

    def _is_same(self, fd: int) -> bool:
        return os.pread(fd, FILE_HEADER_BYTES, 0) == self.header.encode()

    def _before_rest(self) -> None:
        # A write finds no space, and opens the file before it takes some: those to an open file pay nothing.
        self._allocated_at_rest, self._allocated = self._allocated, 0

    def _after_rest(self) -> None:
        self._allocated = self._allocated_at_rest

    # ---- what is known of it

    @property
    def _end(self) -> Place:
        return Place(self.end_seq, self.end_offset, self.message_count, self.newest_ns)

    def go_on(self, record: RecordHeader, offset: int) -> None:
        """The next record of the file is at `offset`: it was found there, or written past `append`."""
        self.missing_count += record.first_seq - self.end_seq
        self.end_seq = record.first_seq
        if offset - self._index_offsets[-1] >= INDEX_EVERY:
            self._index.append(Place(self.end_seq, offset, self.message_count, self.newest_ns))
        self.newest_ns = max(self.newest_ns, record.timestamp_ns)
        self.end_seq = record.end_seq
        self.end_offset = offset + record.record_bytes

    def go_on_to(self, seq: int, offset: int, newest_ns: int) -> None:
        """The records up to here go on from one another, and there is nothing among them for the index."""
        self.end_seq = seq
        self.end_offset = offset
        self.newest_ns = max(self.newest_ns, newest_ns)

    def note(self, seq: int, offset: int) -> None:
        """Remember that the record with `seq` begins at `offset`, if nothing near it is known."""
        if not self.header.is_sparse:  # how many messages are before it is not known there
            self._index.insert(seq, offset, seq - self.first_seq, self.newest_ns)

    def offset_before(self, seq: int) -> int:
        """Where a record begins from which `seq` is found by reading on."""
        return self._index.offset_before(seq)

    def readable_from(self, seq: int) -> int:
        """The number behind `seq` from which on reading may begin without what is before."""
        after = self._index.seq_after(seq)
        return self.end_seq if after is None else after

    def offset_before_time(self, timestamp_ns: int) -> int:
        """Where a record begins from which the first message of this time or later is found by reading on."""
        return self._index.offset_before_time(timestamp_ns)

    def places(self) -> list[int]:
        """Return where some records begin, about every 256 KiB, in rising order."""
        return self._index_offsets

    def segments(self) -> Iterator[Segment]:
        """The file in parts of about 256 KiB."""
        return self._index.segments(self._end)

    def index_copy(self) -> FileIndex:
        """For another thread."""
        return self._index.copy()

    def twin(self) -> LogFile:
        """The same file once more, with a descriptor of its own: to be extended while this one is read.

        Raises OSError.
        """
        return self.with_descriptor(self.duplicate())

    def with_descriptor(self, descriptor: int) -> LogFile:
        """Return all that is known of the file for another descriptor, of a file with the same content."""
        twin = LogFile(self.path, descriptor, self.header, self.end_offset)
        twin.end_offset, twin.end_seq = self.end_offset, self.end_seq
        twin.missing_count, twin.newest_ns = self.missing_count, self.newest_ns
        twin.synced_offset, twin.synced_seq = self.synced_offset, self.synced_seq
        twin._clean_offset = self._clean_offset
        twin._index = self._index.copy()
        twin._index_offsets = twin._index.offsets
        return twin

    # ---- reading

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes, none behind the last record. Raises OSError."""
        return os.pread(self.fileno(), min(size, self.end_offset - offset), offset)

    # ---- the end

    def discard(self) -> Callable[[], None]:
        """Take the file out of the way at once; the rest, which may take 20 ms, is the call that is given back.

        Raises OSError: then the file is as it was.
        """
        gone = self.path.with_name(self.path.name + GONE_SUFFIX)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.path, gone)

        def finish() -> None:
            gone.unlink(missing_ok=True)
            self.close()

        return finish

    def retire(self, spare: Path) -> None:
        """Close, and keep the space as `spare` for the next file. Raises OSError: then the file is as it was."""
        os.rename(self.path, spare)
        self.close()
