"""Compression of files: none, gzip or zstd.

Each write is one complete gzip member or zstd frame. A file is a sequence of them, which every reader of gzip and zstd
reads as one file. So everything that was synced can be read, also after a crash.

ISA-L compresses gzip where it is installed. Its level 1 makes files of the size of zlib's levels 1 to 3 at 4 times the speed;
its level 3 stands for 4 to 6: 3 to 7 times as fast, files 5 % smaller to 30 % larger. Levels 7 to 9 use zlib.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterator
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import cramjam

from nsqd_py.runtime.documents import zstd_frame, zstd_frame_end

_fast: Any
try:
    from isal import isal_zlib as _fast
except ImportError:  # it is an extra
    _fast = None

NONE, GZIP, ZSTD = "none", "gzip", "zstd"
GZIP_LEVELS = range(1, 10)
ZSTD_LEVELS = range(1, 20)
_LARGEST_FAST_LEVEL, _SMALLEST_SLOW_LEVEL = 3, 7
_GZIP_WINDOW_BITS = 31  # the largest window, with a gzip header
_GZIP_MAGIC = b"\x1f\x8b\x08"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_READ_BYTES = 256 * 1024
_PIECE_BYTES = 1024 * 1024
_IN_MEMORY_BYTES = 64 * 1024 * 1024

Data = bytes | mmap.mmap


class DecodedPiece(NamedTuple):
    """Decompressed bytes. `end` is the offset in the file where the member or frame ends; 0 before its last piece."""

    data: bytes
    end: int


class Codec(NamedTuple):
    """One way of compression.

    compress(data, level)  returns a complete member or frame
    pieces(data, start)    yields the contents of a file from `start` on, up to the first member or frame that is incomplete
                           or damaged
    magic                  the first bytes of each member or frame
    ends_inside(data, start)  True if the file ends before the member or frame that begins at `start`
    """

    name: str
    suffix: str
    compress: Callable[[bytes, int], bytes]
    pieces: Callable[[Data, int], Iterator[DecodedPiece]]
    magic: bytes = b""
    ends_inside: Callable[[Data, int], bool] = lambda data, start: True

    @property
    def is_plain(self) -> bool:
        return self.name == NONE


# --- incomplete writes


def is_incomplete_write(codec: Codec, data: Data, start: int) -> bool:
    """True if the bytes from `start` on are the beginning of a member or frame, or zeros: a write that was interrupted.

    False if they are damaged: they are something else, or there is a whole member or frame behind them.
    """
    if is_zero(data, start):
        return True
    beginning = data[start : start + len(codec.magic)]
    if not codec.magic.startswith(beginning) or not codec.ends_inside(data, start):
        return False
    position = data.find(codec.magic, start + 1)
    while position >= 0:
        if any(piece.end for piece in codec.pieces(data, position)):
            return False
        position = data.find(codec.magic, position + 1)
    return True


def is_zero(data: Data, start: int) -> bool:
    """True if all bytes from `start` on are zeros: a power cut may leave the size of a file without its data."""
    return not any(data[at : at + _READ_BYTES].strip(b"\0") for at in range(start, len(data), _READ_BYTES))


# --- none


def _plain_pieces(data: Data, start: int) -> Iterator[DecodedPiece]:
    for position in range(start, len(data), _READ_BYTES):
        piece = data[position : position + _READ_BYTES]
        yield DecodedPiece(piece, position + len(piece))


# --- gzip


def _gzip(data: bytes, level: int) -> bytes:
    if level < _SMALLEST_SLOW_LEVEL and _fast is not None:
        member: bytes = _fast.compress(data, 1 if level <= _LARGEST_FAST_LEVEL else 3, _GZIP_WINDOW_BITS)
        return member
    return zlib.compress(data, level, _GZIP_WINDOW_BITS)


def _gzip_pieces(data: Data, start: int) -> Iterator[DecodedPiece]:
    library = _fast or zlib
    errors = (zlib.error, library.error)
    position = start
    while position < len(data):
        member = library.decompressobj(_GZIP_WINDOW_BITS)
        while not member.eof and position < len(data):
            chunk = data[position : position + _READ_BYTES]
            position += len(chunk)
            has_more = True
            while has_more:
                try:
                    plain = member.decompress(chunk, _PIECE_BYTES)
                except errors:
                    return
                chunk = member.unconsumed_tail
                # A full piece may have a rest in the decompressor, although there is no input left.
                has_more = not member.eof and (bool(chunk) or len(plain) == _PIECE_BYTES)
                yield DecodedPiece(plain, position - len(member.unused_data) if member.eof else 0)
        position -= len(member.unused_data)


def _gzip_ends_inside(data: Data, start: int) -> bool:
    library = _fast or zlib
    member = library.decompressobj(_GZIP_WINDOW_BITS)
    for position in range(start, len(data), _READ_BYTES):
        try:
            member.decompress(data[position : position + _READ_BYTES])
        except (zlib.error, library.error):
            return False
        if member.eof:
            return False
    return True


# --- zstd (RFC 8878)


def _zstd(data: bytes, level: int) -> bytes:
    return bytes(cramjam.zstd.compress(data, level))


def _zstd_ends_inside(data: Data, start: int) -> bool:
    return zstd_frame_end(data, start) is None


def _zstd_pieces(data: Data, start: int) -> Iterator[DecodedPiece]:
    position = start
    while (frame := zstd_frame(data, position)) is not None:
        packed = data[position : frame.end]
        try:
            if frame.most_bytes <= _IN_MEMORY_BYTES:
                yield DecodedPiece(bytes(cramjam.zstd.decompress(packed)), frame.end)
            else:
                yield from _from_disk(packed, frame.end)
        except cramjam.DecompressionError:
            return
        position = frame.end


def _from_disk(packed: bytes, end: int) -> Iterator[DecodedPiece]:
    """Yield a frame that may be larger than the memory: a few kB of it may be gigabytes. Raises DecompressionError, OSError."""
    with NamedTemporaryFile() as file:
        cramjam.zstd.decompress_into(packed, cramjam.File(file.name))
        while plain := file.read(_PIECE_BYTES):
            yield DecodedPiece(plain, 0)
    yield DecodedPiece(b"", end)


CODECS = {
    codec.name: codec
    for codec in (
        Codec(NONE, "", lambda data, level: data, _plain_pieces),
        Codec(GZIP, ".gz", _gzip, _gzip_pieces, _GZIP_MAGIC, _gzip_ends_inside),
        Codec(ZSTD, ".zst", _zstd, _zstd_pieces, _ZSTD_MAGIC, _zstd_ends_inside),
    )
}
