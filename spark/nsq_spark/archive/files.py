"""Open files, which are read at any place: local ones, those of pyarrow; and any of them as a stream for pyarrow."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from typing import Any, Self


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
