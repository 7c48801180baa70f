"""Open files, which are read at any place: local ones, those of pyarrow; and any of them as a stream for pyarrow,
or by index."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from typing import Any, Self

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


class Stream(io.RawIOBase):
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


class Window:
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
