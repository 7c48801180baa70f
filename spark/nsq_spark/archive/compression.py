"""gzip and zstd around whole files: rows of members or frames, as nsq-to-file and everybody else write them.

What a member or frame holds is given on once all of it was decompressed and, for gzip, its checksum is right; large
ones wait in a temporary file meanwhile. So nothing wrong is ever given on: of one that is damaged, or that the file
ends in, nothing is read, but the next one that is whole is found.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa

from nsq_spark.archive.formats import Compression
from nsq_spark.archive.storage import File, LocalFile
from nsq_tools.to_file.compression import zstd_frame_end

_fast: Any
try:
    from isal import isal_zlib as _fast
except ImportError:  # no wheel for this machine
    _fast = None

_BLOCK_BYTES = 256 * 1024
_CHUNK_BYTES = 32 * 1024
_PIECE_BYTES = 1024 * 1024
_IN_MEMORY_BYTES = 32 * 1024 * 1024
_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW_BITS = 31  # the largest window, with a gzip header
_SKIPPABLE_MAGIC = range(0x184D2A50, 0x184D2A60)
_SKIPPABLE_HEAD_BYTES = 8

# Told where in the decompressed file something is missing, how many compressed bytes were passed over, and what it is.
OnDamage = Callable[[int, int, str], None]


class Window:
    """A file by index and slice, a block of it in memory."""

    def __init__(self, file: File) -> None:
        self._file = file
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
        """Up to `size` bytes, fewer only at the end. Raises OSError."""
        low = start - self._start
        if low < 0 or low + size > len(self._block):
            if size > _BLOCK_BYTES:
                return self._file.read_at(start, size)
            self._block, self._start, low = self._file.read_at(start, _BLOCK_BYTES), start, 0
        return self._block[low : low + size]

    def find(self, pattern: bytes, start: int) -> int:
        """Where it is, from `start` on; -1: nowhere."""
        while start + len(pattern) <= self._size:
            block = self.read(start, _BLOCK_BYTES)
            found = block.find(pattern)
            if found >= 0:
                return start + found
            start += max(1, len(block) - len(pattern) + 1)
        return -1


class NotWhole(Exception):
    """A member or frame is damaged, or the file ends in it."""


# Decompresses the member or frame at a place into the file; where it ends. Raises NotWhole.
Decompress = Callable[[Window, int, IO[bytes]], int]


def plain_pieces(file: File, compression: Compression, on_damage: OnDamage) -> Iterator[bytes]:
    """What a compressed file holds, in pieces. Raises OSError, and what `on_damage` raises."""
    magic, decompress = _GZIP if compression is Compression.GZIP else _ZSTD
    data = Window(file)
    position = plain_position = 0
    damaged_from = -1
    while 0 <= position < len(data):
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as out:
            try:
                end = decompress(data, position, out)
            except NotWhole:
                damaged_from = position if damaged_from < 0 else damaged_from
                position = data.find(magic, position + 1)
                continue
            if damaged_from >= 0:
                on_damage(plain_position, position - damaged_from, f"bytes {damaged_from} to {position} of the file")
                damaged_from = -1
            out.seek(0)
            while piece := out.read(_PIECE_BYTES):
                plain_position += len(piece)
                yield piece
            position = end
    if damaged_from >= 0:
        on_damage(plain_position, len(data) - damaged_from, f"the file from byte {damaged_from} on")


def decompressed(file: File, compression: Compression, on_damage: OnDamage) -> LocalFile:
    """A temporary file with what a compressed one holds."""
    plain = LocalFile.temporary()
    try:
        for piece in plain_pieces(file, compression, on_damage):
            plain.append(piece)
    except BaseException:
        plain.close()
        raise
    return plain


# ---- gzip (RFC 1952)


def _gzip_member(data: Window, start: int, out: IO[bytes]) -> int:
    library: Any = zlib if _fast is None else _fast
    member = library.decompressobj(_GZIP_WINDOW_BITS)
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
    except (zlib.error, library.error):
        raise NotWhole from None
    return position - len(member.unused_data)


# ---- zstd (RFC 8878)


def _zstd_frame(data: Window, start: int, out: IO[bytes]) -> int:
    view: Any = data
    end = _skippable_end(data, start)
    if end is None and (end := zstd_frame_end(view, start)) is not None:
        try:
            for piece in _zstd_pieces(data, start, end):
                out.write(piece)
        except OSError:
            raise NotWhole from None
    if end is None or end > len(data):
        raise NotWhole
    return end


def _skippable_end(data: Window, start: int) -> int | None:
    head = data.read(start, _SKIPPABLE_HEAD_BYTES)
    if int.from_bytes(head[:4], "little") not in _SKIPPABLE_MAGIC:
        return None
    return start + _SKIPPABLE_HEAD_BYTES + int.from_bytes(head[4:], "little")


def _zstd_pieces(data: Window, start: int, end: int) -> Iterator[bytes]:
    """Raises OSError where it cannot be decompressed."""
    source = pa.BufferReader(data[start:end]) if end - start <= _PIECE_BYTES else pa.PythonFile(_Part(data, start, end))
    with pa.CompressedInputStream(source, "zstd") as stream:
        while piece := stream.read(_PIECE_BYTES):
            yield piece


class _Part:
    """Bytes `start` to `end` as pyarrow reads a file."""

    closed = False

    def __init__(self, data: Window, start: int, end: int) -> None:
        self._data = data
        self._position = start
        self._end = end

    def read(self, size: int) -> bytes:
        piece: bytes = self._data[self._position : min(self._position + size, self._end)]
        self._position += len(piece)
        return piece

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


_GZIP: tuple[bytes, Decompress] = (_GZIP_MAGIC, _gzip_member)
_ZSTD: tuple[bytes, Decompress] = (_ZSTD_MAGIC, _zstd_frame)
