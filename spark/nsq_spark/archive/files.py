"""Open files, which are read at any offset; and what compressed ones hold.

A compressed file is a row of gzip members or zstd frames. The contents of one are returned once all of it is
decompressed and, for gzip, its checksum is right; large ones wait in a temporary file. A damaged or incomplete one
gives nothing, and reading continues with the next whole one.
"""

from __future__ import annotations

import fcntl
import io
import os
import signal
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import IO, Any, Self

import pyarrow as pa

from nsq_spark.archive.splits import COMPRESSION_MAGIC, Compression
from nsqd_py.runtime.documents import zstd_frame_end

_BLOCK_BYTES = 256 * 1024


class File(ABC):
    """An open file. Its methods raise OSError."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Size at this moment: nsqd may be writing to the file."""

    @abstractmethod
    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on; fewer only at the end of the file."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class LocalFile(File):
    """A file read by `pread`, not mapped: if nsqd cut a mapped log under a reader, the reader's process would end."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    @classmethod
    def open(cls, path: str) -> LocalFile:
        return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        while len(data) < size and (more := os.pread(self._fd, size - len(data), offset + len(data))):
            data += more  # a call returns 2 GiB at most
        return data

    def may_have_writer(self) -> bool:
        """True unless no process has the file open for writing: then the kernel grants a lease (fcntl(2)) to this one.

        Another machine may write to a file that is not on a disk of this one.
        """
        if not os.major(os.fstat(self._fd).st_dev):
            return True
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETSIG, signal.SIGURG)  # SIGIO would end this process if a writer came now
            fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            return True
        return False

    def close(self) -> None:
        os.close(self._fd)


class RemoteFile(File):
    """A file that pyarrow has opened."""

    def __init__(self, file: Any) -> None:
        self._file = file

    @property
    def size_bytes(self) -> int:
        return int(self._file.size())

    def read_at(self, offset: int, size: int) -> bytes:
        data: bytes = self._file.read_at(size, offset)
        return data

    def close(self) -> None:
        self._file.close()


class ArchiveStream(io.RawIOBase):
    """Bytes `start` to `end` of a file with a current position, as pyarrow reads them; without `end`, to its end."""

    def __init__(self, file: File, start: int = 0, end: int | None = None) -> None:
        self._file = file
        self._start = self._position = start
        self._end = file.size_bytes if end is None else end

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._end - self._position)
        data = self._file.read_at(self._position, left if size < 0 else min(size, left))
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (self._start, self._position, self._end)[whence]
        return self.tell()

    def tell(self) -> int:
        return self._position - self._start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class FileWindow:
    """A file by index and slice, as it is at its creation, with a block of it in memory."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._size = file.size_bytes
        self._block = b""
        self._start = 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, int):
            return self.read(place, 1)[0]
        start, stop, _ = place.indices(self._size)
        return self.read(start, max(0, stop - start))

    def read(self, start: int, size: int) -> bytes:
        """Return up to `size` bytes, fewer only at the end. Raises OSError."""
        low = start - self._start
        if low < 0 or low + size > len(self._block):
            if size > _BLOCK_BYTES:
                return self.file.read_at(start, size)
            self._block, self._start, low = self.file.read_at(start, _BLOCK_BYTES), start, 0
        return self._block[low : low + size]

    def find(self, pattern: bytes, start: int) -> int:
        """Return the place of a pattern from `start` on; -1 if there is none."""
        while start + len(pattern) <= self._size:
            block = self.read(start, _BLOCK_BYTES)
            found = block.find(pattern)
            if found >= 0:
                return start + found
            start += max(1, len(block) - len(pattern) + 1)
        return -1


_fast: Any
try:
    from isal import isal_zlib as _fast
except ImportError:  # no wheel for this machine
    _fast = zlib

_CHUNK_BYTES = 32 * 1024
_PIECE_BYTES = 1024 * 1024
_IN_MEMORY_BYTES = 32 * 1024 * 1024
_GZIP_WINDOW_BITS = 31  # the largest window, with a gzip header

# Called with a position in the decompressed file, how many compressed bytes are missing there, what they are, and True if the
# file ends there.
OnDamage = Callable[[int, int, str, bool], None]


class NotWhole(Exception):
    """A member or frame is damaged, or the file ends in it."""


def plain_pieces(file: File, compression: Compression, on_damage: OnDamage) -> Iterator[bytes]:
    """Yield what a compressed file holds. Raises OSError, and what `on_damage` raises."""
    magic, decompress = COMPRESSION_MAGIC[compression], _DECOMPRESS[compression]
    data = FileWindow(file)
    position = plain_position = 0
    damaged_from = -1
    while 0 <= position < len(data):
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as out:
            try:
                end = decompress(data, position, out)
            except NotWhole:
                if position and compression is Compression.GZIP and _is_zero(data, position):
                    return  # gzip passes over zeros behind the last member, too
                damaged_from = position if damaged_from < 0 else damaged_from
                position = data.find(magic, position + 1)
                continue
            if damaged_from >= 0:
                on_damage(plain_position, position - damaged_from, f"bytes {damaged_from} to {position} of the file", False)
                damaged_from = -1
            out.seek(0)
            while piece := out.read(_PIECE_BYTES):
                plain_position += len(piece)
                yield piece
            position = end
    if damaged_from >= 0:
        on_damage(plain_position, len(data) - damaged_from, f"the file from byte {damaged_from} on", True)


def _is_zero(data: FileWindow, start: int) -> bool:
    """True if all bytes from `start` on are zeros. Raises OSError."""
    return not any(data.read(at, _BLOCK_BYTES).strip(b"\0") for at in range(start, len(data), _BLOCK_BYTES))


def decompressed(file: File, compression: Compression, on_damage: OnDamage) -> LocalFile:
    """Return a temporary file, without a name, with what a compressed one holds. Raises as `plain_pieces`."""
    with tempfile.TemporaryFile() as plain:
        plain.writelines(plain_pieces(file, compression, on_damage))
        plain.flush()
        return LocalFile(os.dup(plain.fileno()))


def _gzip_member(data: FileWindow, start: int, out: IO[bytes]) -> int:
    """Decompress a member (RFC 1952); return where it ends. Raises NotWhole."""
    member = _fast.decompressobj(_GZIP_WINDOW_BITS)
    position = start
    try:
        while not member.eof:
            chunk = data.read(position, _CHUNK_BYTES)
            if not chunk:
                raise NotWhole
            position += len(chunk)
            while chunk and not member.eof:
                out.write(member.decompress(chunk, _PIECE_BYTES))
                chunk = member.unconsumed_tail
    except (zlib.error, _fast.error):
        raise NotWhole from None
    return position - len(member.unused_data)


def _zstd_frame(data: FileWindow, start: int, out: IO[bytes]) -> int:
    """Decompress a frame (RFC 8878); return where it ends. Raises NotWhole."""
    window: Any = data
    end = zstd_frame_end(window, start)
    if end is None:
        raise NotWhole
    in_memory = end - start <= _PIECE_BYTES
    source = pa.BufferReader(data[start:end]) if in_memory else pa.PythonFile(ArchiveStream(data.file, start, end), "r")
    try:
        with pa.CompressedInputStream(source, "zstd") as stream:
            while piece := stream.read(_PIECE_BYTES):
                out.write(piece)
    except OSError:
        raise NotWhole from None
    return end


_DECOMPRESS: dict[Compression, Callable[[FileWindow, int, IO[bytes]], int]] = {
    Compression.GZIP: _gzip_member,
    Compression.ZSTD: _zstd_frame,
}
