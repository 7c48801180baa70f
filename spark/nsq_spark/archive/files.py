"""The contents of compressed files; files that pyarrow has opened or that are in memory, and files as pyarrow reads them.

A compressed file is a row of gzip members or zstd frames. The contents of one are returned once all of it is
decompressed and, for gzip, its checksum is right; large ones wait in a temporary file. A damaged or incomplete one
gives nothing, and reading continues with the next whole one.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from nsq_spark.archive.splits import ArchiveError, Damage, Split
from nsqd_py.stores.compression import CODECS, Codec, is_padding, next_whole
from nsqd_py.stores.files import File as File
from nsqd_py.stores.files import FileWindow, LocalFile

_PIECE_BYTES = 1024 * 1024
_IN_MEMORY_BYTES = 32 * 1024 * 1024


@dataclass
class RemoteFile(File):
    """A file that pyarrow has opened."""

    _file: Any

    @property
    def size_bytes(self) -> int:
        return int(self._file.size())

    def read_at(self, offset: int, size: int) -> bytes:
        return bytes(self._file.read_at(size, offset))

    def close(self) -> None:
        self._file.close()


class BytesFile(File):
    """Bytes in memory as a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def close(self) -> None:
        """Nothing is open."""


class ArchiveStream(io.RawIOBase):
    """A file with a current position, as pyarrow reads it. Its end is where it was at the creation.

    An error of the system is raised as ArchiveError: pyarrow raises OSError also for damage.
    """

    def __init__(self, file: File, path: str) -> None:
        self._file = file
        self._path = path
        self._position = 0
        self._end = file.size_bytes

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._end - self._position)
        try:
            data = self._file.read_at(self._position, left if size < 0 else min(size, left))
        except OSError as error:
            raise ArchiveError(f"{self._path} cannot be read: {error}") from error
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._end)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True


def plain_pieces(file: File, split: Split, damage: Damage) -> Iterator[bytes]:
    """Yield what a compressed file holds; b"" instead of what is damaged. Raises OSError and DamagedArchive."""
    codec = CODECS[split.compression]
    data = FileWindow(file)
    position = 0
    plain_position = 0
    while position < len(data):
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as out:
            end = _decompress(codec, data, position, out)
            if end:
                out.seek(0)
                while piece := out.read(_PIECE_BYTES):
                    plain_position += len(piece)
                    yield piece
            elif is_padding(codec, data, position):
                return
            else:
                end = next_whole(codec, data, position + 1)
                is_end = end == len(data)
                if is_end:
                    what = f"the file from byte {position} on"
                else:
                    what = f"bytes {position} to {end} of the file"
                damage.found(
                    split.path,
                    plain_position,
                    plain_position + end - position,
                    f"not decompressed: {what}",
                    is_unfinished=is_end and split.is_live,
                )
                yield b""
            position = end


def _decompress(codec: Codec, data: FileWindow, start: int, out: IO[bytes]) -> int:
    """Write what one member or frame holds. Return its end; 0 if it is damaged, or if the file ends in it."""
    for piece in codec.pieces(data, start):
        out.write(piece.data)
        if piece.end:
            return piece.end
    return 0


def decompressed(file: File, split: Split, damage: Damage) -> LocalFile:
    """Return a temporary file, without a name, with what a compressed one holds. Raises OSError and DamagedArchive."""
    with tempfile.TemporaryFile() as plain:
        plain.writelines(plain_pieces(file, split, damage))
        plain.flush()
        return LocalFile(os.dup(plain.fileno()))
