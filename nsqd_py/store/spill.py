"""`Chunks`: the bytes of the end of a log file, in memory or, when an image has many of them, in a file without a name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

# Of all chunks of an image.
_MOST_IN_MEMORY = 4 * 1024 * 1024
# Eight threads of a restore have one each.
_PIECE_BYTES = 1024 * 1024


class Spill:
    """Takes the chunks of an image that are too many for the memory. One thread adds, several may read.

    The file has no name, so that nothing is left of it after a crash. Where the disk takes nothing, chunks stay in memory.

    directory  where the file is
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._memory_bytes = 0
        self._file: IO[bytes] | None = None
        self._end = 0

    def add(self, data: bytes) -> int | None:
        """Return the offset where the file has these bytes now; None if they must stay in memory."""
        if self._memory_bytes + len(data) <= _MOST_IN_MEMORY:
            self._memory_bytes += len(data)
            return None
        offset = self._end
        with suppress(OSError):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115  closed with it
            view = memoryview(data)
            while view:
                view = view[os.pwrite(self._file.fileno(), view, offset + len(data) - len(view)) :]
            self._end += len(data)
            return offset
        return None

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes that were added. Raises OSError."""
        assert self._file is not None
        data = os.pread(self._file.fileno(), size_bytes, offset)
        if len(data) != size_bytes:
            raise OSError(f"{self._directory}: bytes of the store that were kept there are gone")
        return data


class Chunks:
    """Pieces of a file, one after the other. Raises OSError when they are read back.

    spill  None keeps all in memory
    """

    __slots__ = ("_parts", "_spill")

    def __init__(self, spill: Spill | None = None) -> None:
        self._spill = spill
        self._parts: list[bytes | tuple[int, int]] = []  # or the range in the file

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, bytes):
                yield part
                continue
            assert self._spill is not None
            start, end = part
            for offset in range(start, end, _PIECE_BYTES):
                yield self._spill.read(offset, min(_PIECE_BYTES, end - offset))

    def last(self, most_bytes: int) -> bytes:
        """Return the end of the last piece."""
        if not self._parts:
            return b""
        part = self._parts[-1]
        if isinstance(part, bytes):
            return part[-most_bytes:]
        assert self._spill is not None
        start = max(part[0], part[1] - most_bytes)
        return self._spill.read(start, part[1] - start)

    def append(self, data: bytes) -> None:
        """Add bytes behind the others."""
        start = None
        if self._spill is not None:
            start = self._spill.add(data)
        last = None
        if self._parts:
            last = self._parts[-1]
        if start is None:
            self._parts.append(data)
        elif isinstance(last, tuple) and last[1] == start:
            self._parts[-1] = (last[0], start + len(data))
        else:
            self._parts.append((start, start + len(data)))
