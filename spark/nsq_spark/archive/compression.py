"""gzip and zstd around whole files: rows of members or frames, as nsq-to-file and everybody else write them.

The contents of a member or frame are returned once all of it is decompressed and, for gzip, its checksum is right;
large ones wait in a temporary file. A damaged one, or one that the file ends in, gives nothing, and reading goes on
with the next whole one.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa

from nsq_spark.archive.files import File, LocalFile, Stream, Window
from nsq_spark.archive.formats import COMPRESSION_MAGIC, Compression
from nsq_tools.to_file.compression import zstd_frame_end

_fast: Any
try:
    from isal import isal_zlib as _fast
except ImportError:  # no wheel for this machine
    _fast = zlib

_CHUNK_BYTES = 32 * 1024
_PIECE_BYTES = 1024 * 1024
_IN_MEMORY_BYTES = 32 * 1024 * 1024
_GZIP_WINDOW_BITS = 31  # the largest window, with a gzip header
_SKIPPABLE_MAGIC = range(0x184D2A50, 0x184D2A60)
_SKIPPABLE_HEAD_BYTES = 8

# Called with a position in the decompressed file, how many compressed bytes are missing there, and what they are.
OnDamage = Callable[[int, int, str], None]


class NotWhole(Exception):
    """A member or frame is damaged, or the file ends in it."""


def plain_pieces(file: File, compression: Compression, on_damage: OnDamage) -> Iterator[bytes]:
    """Yield what a compressed file holds. Raises OSError, and what `on_damage` raises."""
    magic, decompress = COMPRESSION_MAGIC[compression], _DECOMPRESS[compression]
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
    """Return a temporary file, without a name, with what a compressed one holds. Raises as `plain_pieces`."""
    with tempfile.TemporaryFile() as plain:
        plain.writelines(plain_pieces(file, compression, on_damage))
        plain.flush()
        return LocalFile(os.dup(plain.fileno()))


def _gzip_member(data: Window, start: int, out: IO[bytes]) -> int:
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


def _zstd_frame(data: Window, start: int, out: IO[bytes]) -> int:
    """Decompress a frame (RFC 8878); return where it ends. Raises NotWhole."""
    window: Any = data
    end = _skippable_end(data, start)
    if end is None and (end := zstd_frame_end(window, start)) is not None:
        in_memory = end - start <= _PIECE_BYTES
        source = pa.BufferReader(data[start:end]) if in_memory else pa.PythonFile(Stream(data.file, start, end), "r")
        try:
            with pa.CompressedInputStream(source, "zstd") as stream:
                while piece := stream.read(_PIECE_BYTES):
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


_DECOMPRESS: dict[Compression, Callable[[Window, int, IO[bytes]], int]] = {
    Compression.GZIP: _gzip_member,
    Compression.ZSTD: _zstd_frame,
}
