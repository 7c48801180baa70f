"""One file of a topic's log: appended to at a known place, read anywhere.

Data is written with `pwritev` at an offset that only moves when all of it was taken, so that what a failed
write left behind is never read. Space is allocated ahead in growing steps: on a busy machine a write into
allocated space takes a third of one that extends the file, and a write over a used file a sixth.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader

_NAME = re.compile(r"(?P<topic>.+)\.(?P<seq>\d{20})\.log")
GONE_SUFFIX = ".gone"
SPARE_SUFFIX = ".spare"
_FIRST_STEP = 64 * 1024
_LARGEST_STEP = 16 * 1024 * 1024
_INDEX_EVERY = 256 * 1024
_MOST_BUFFERS = 1000  # IOV_MAX is 1024
_JOIN_BELOW = 64 * 1024


def log_file_name(topic: str, first_seq: int) -> str:
    """`<topic>.<first sequence number, 20 digits>.log`"""
    return f"{topic}.{first_seq:020d}.log"


def parse_log_file_name(name: str) -> tuple[str, int] | None:
    """(topic, first sequence number), or None for a file of another kind."""
    match = _NAME.fullmatch(name)
    return (match["topic"], int(match["seq"])) if match else None


class LogFile:
    """An open log file. `end_offset` is where the next record goes, `end_seq` the number it begins with."""

    __slots__ = (
        "_allocated", "_fd", "_index_offsets", "_index_seqs", "end_offset", "end_seq", "header", "path", "salt",
    )  # fmt: skip

    def __init__(self, path: Path, fd: int, header: FileHeader, allocated: int) -> None:
        self.path = path
        self.header = header
        self.salt = header.salt
        self.end_seq = header.first_seq
        self.end_offset = FILE_HEADER_BYTES
        self._fd = fd
        self._allocated = allocated
        self._index_seqs = [header.first_seq]
        self._index_offsets = [FILE_HEADER_BYTES]

    @classmethod
    def create(cls, path: Path, first_seq: int, used_id: int, spare: Path | None = None) -> LogFile:
        """A new file, made of a used one when there is a spare. Raises OSError."""
        header = FileHeader(secrets.randbits(32), first_seq, used_id, is_reused=spare is not None)
        fd = os.open(spare or path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.pwrite(fd, header.encode(), 0) != FILE_HEADER_BYTES:
                raise OSError("short write of a log file's header")
            if spare is not None:
                os.rename(spare, path)
            return cls(path, fd, header, os.fstat(fd).st_size)
        except OSError:
            os.close(fd)
            if spare is None:  # an empty file would be reported as damaged at the next start
                with contextlib.suppress(OSError):
                    path.unlink()
            raise

    @classmethod
    def open(cls, path: Path) -> LogFile:
        """An existing file, of which nothing is known yet but its header. Raises OSError and Damaged."""
        fd = os.open(path, os.O_RDWR)
        try:
            header = FileHeader.decode(os.pread(fd, FILE_HEADER_BYTES, 0))
            return cls(path, fd, header, os.fstat(fd).st_size)
        except BaseException:
            os.close(fd)
            raise

    @property
    def first_seq(self) -> int:
        return self.header.first_seq

    def fileno(self) -> int:
        return self._fd

    def append(self, buffers: list[bytes], size: int, end_seq: int) -> None:
        """Write records of `size` bytes in all behind the last. Raises OSError; then the file is as it was."""
        offset = self.end_offset
        if offset + size > self._allocated:
            self._allocate(offset + size)
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
        if offset - self._index_offsets[-1] >= _INDEX_EVERY:
            self._index_offsets.append(offset)
            self._index_seqs.append(self.end_seq)
        self.end_offset = offset + size
        self.end_seq = end_seq

    def append_record(self, record: bytes, end_seq: int) -> None:
        """Write one record behind the last. Raises OSError; then the file is as it was."""
        offset = self.end_offset
        after = offset + len(record)
        if after > self._allocated or offset - self._index_offsets[-1] >= _INDEX_EVERY:
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

    def _allocate(self, needed: int) -> None:
        """Reserve space behind what is needed, in steps that grow with the file."""
        step = min(max(self.end_offset, _FIRST_STEP), _LARGEST_STEP)
        wanted = needed + step
        # Full disk, or a file system that cannot: the write itself will say.
        with contextlib.suppress(OSError):
            os.posix_fallocate(self._fd, self._allocated, wanted - self._allocated)
            self._allocated = wanted

    def cut(self) -> None:
        """Give back what is allocated, or left of a failed write, behind the last record."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self.end_offset)
            self._allocated = self.end_offset

    # ---- reading

    def note(self, seq: int, offset: int) -> None:
        """Remember that the record with `seq` begins at `offset`, if nothing near it is known."""
        place = bisect_right(self._index_offsets, offset)
        if offset - self._index_offsets[place - 1] >= _INDEX_EVERY:
            self._index_offsets.insert(place, offset)
            self._index_seqs.insert(place, seq)

    def offset_before(self, seq: int) -> int:
        """Where a record begins from which `seq` is found by reading on."""
        return self._index_offsets[max(0, bisect_right(self._index_seqs, seq) - 1)]

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes, none behind the last record. Raises OSError."""
        return os.pread(self._fd, min(size, self.end_offset - offset), offset)

    # ---- the end

    def close(self) -> None:
        os.close(self._fd)

    def discard(self) -> Callable[[], None]:
        """Take the file out of the way at once; the rest, which may take 20 ms, is the call that is given back.

        Raises OSError: then the file is as it was.
        """
        gone = self.path.with_name(self.path.name + GONE_SUFFIX)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.path, gone)

        def finish() -> None:
            gone.unlink(missing_ok=True)
            os.close(self._fd)

        return finish

    def retire(self, spare: Path) -> None:
        """Close, and keep the space as `spare` for the next file. Raises OSError: then the file is as it was."""
        os.rename(self.path, spare)
        os.close(self._fd)
