"""Compression of files: none, gzip or zstd.

Each write is one complete gzip member or zstd frame. A file is a sequence of them, which every reader of gzip and zstd
reads as one file. So everything that was synced can be read, also after a crash.

ISA-L compresses gzip where it is installed. Its level 1 makes files of the size of zlib's levels 1 to 3 at 4 times the speed;
its level 3 stands for 4 to 6: 3 to 7 times as fast, files 5 % smaller to 30 % larger. Levels 7 to 9 use zlib.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import cramjam

from nsqd_py.diskqueue.records import Data
from nsqd_py.runtime.documents import zstd_frame, zstd_frame_end

_fast: Any
try:
    from isal import isal_zlib as _fast
except ImportError:  # it is an extra
    _fast = None

NONE = "none"
GZIP = "gzip"
ZSTD = "zstd"
GZIP_LEVELS = range(1, 10)
ZSTD_LEVELS = range(1, 20)
_LARGEST_FAST_LEVEL = 3
_SMALLEST_SLOW_LEVEL = 7
_GZIP_WINDOW_BITS = 31  # the largest window, with a gzip header
_GZIP_MAGIC = b"\x1f\x8b\x08"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
_READ_BYTES = 256 * 1024
_GZIP_READ_BYTES = 32 * 1024  # what is behind a member is copied once for each, and members may be small
_PIECE_BYTES = 1024 * 1024
_IN_MEMORY_BYTES = 64 * 1024 * 1024


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
    return next_whole(codec, data, start + 1) == len(data)


def next_whole(codec: Codec, data: Data, start: int) -> int:
    """Return where the first member or frame begins that is whole, from `start` on; the end of the file if there is none."""
    position = data.find(codec.magic, start)
    while position >= 0:
        if any(piece.end for piece in codec.pieces(data, position)):
            return position
        position = data.find(codec.magic, position + 1)
    return len(data)


def is_zero(data: Data, start: int) -> bool:
    """True if all bytes from `start` on are zeros: a power cut may leave the size of a file without its data."""
    return not any(data[at : at + _READ_BYTES].strip(b"\0") for at in range(start, len(data), _READ_BYTES))


def is_padding(codec: Codec, data: Data, start: int) -> bool:
    """True if there are only zeros behind the last member: gzip passes over these, too."""
    return start > 0 and codec.name == GZIP and is_zero(data, start)


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
    position = start
    packed = b""  # what is read, up to `position`, and not decompressed yet
    while packed or position < len(data):
        member = library.decompressobj(_GZIP_WINDOW_BITS)
        has_more = True
        while has_more:
            if not packed:
                packed = data[position : position + _GZIP_READ_BYTES]
                position += len(packed)
            try:
                plain = member.decompress(packed, _PIECE_BYTES)
            except (zlib.error, library.error):
                return
            packed = member.unused_data if member.eof else member.unconsumed_tail
            yield DecodedPiece(plain, position - len(packed) if member.eof else 0)
            # A full piece may have a rest in the decompressor, although there is no input left.
            has_input = bool(packed) or position < len(data)
            has_more = not member.eof and (has_input or len(plain) == _PIECE_BYTES)


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
    position = _behind_skippable(data, start)
    while (frame := zstd_frame(data, position)) is not None:
        end = _behind_skippable(data, frame.end)
        try:
            if frame.most_bytes <= _IN_MEMORY_BYTES:
                yield DecodedPiece(bytes(cramjam.zstd.decompress(data[position : frame.end])), end)
            else:
                yield from _from_disk(data, position, frame.end)
                yield DecodedPiece(b"", end)
        except cramjam.DecompressionError:
            return
        position = end


def _behind_skippable(data: Data, start: int) -> int:
    """Return the end of the skippable frames from `start` on, which pzstd writes: their contents are for decompressors."""
    position = start
    while _SKIPPABLE.fullmatch(data[position : position + 4]):
        position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
    if position <= len(data):
        return position
    return start


def _from_disk(data: Data, start: int, end: int) -> Iterator[DecodedPiece]:
    """Yield a frame that may be larger than the memory: a few kB of it may be gigabytes. Raises DecompressionError, OSError."""
    with NamedTemporaryFile() as packed, NamedTemporaryFile() as plain:
        for position in range(start, end, _READ_BYTES):
            packed.write(data[position : min(end, position + _READ_BYTES)])
        packed.flush()
        cramjam.zstd.decompress_into(cramjam.File(packed.name), cramjam.File(plain.name))
        while piece := plain.read(_PIECE_BYTES):
            yield DecodedPiece(piece, 0)


CODECS = {
    codec.name: codec
    for codec in (
        Codec(NONE, "", lambda data, level: data, _plain_pieces),
        Codec(GZIP, ".gz", _gzip, _gzip_pieces, _GZIP_MAGIC, _gzip_ends_inside),
        Codec(ZSTD, ".zst", _zstd, _zstd_pieces, _ZSTD_MAGIC, _zstd_ends_inside),
    )
}
