"""Open files, which are read at any offset, as nsqd, nsq-to-file or another program may be writing to them."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
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

    def may_have_writer(self) -> bool:
        """True unless no process has the file open for writing: then the kernel grants a lease (fcntl(2)) to this one.

        Another machine may write to a file that is not on a disk of this one.
        """
        if not os.major(os.fstat(self._fd).st_dev):
            return True
        try:
            # SIGIO would end this process if a writer came now.
            fcntl.fcntl(self._fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            return True
        return False

    def close(self) -> None:
        os.close(self._fd)


class FileWindow:
    """A file by index and slice, as long as it was at first, with a block of it in memory.

    Raises OSError, also if the file has become shorter.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = file.size_bytes
        self._block = b""
        self._start = 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            return self[index : index + 1][0]
        start, end, _ = index.indices(self._size)
        if start < self._start or end > self._start + len(self._block):
            self._block = self._file.read_at(start, max(end - start, _BLOCK_BYTES))
            self._start = start
            if len(self._block) < end - start:
                raise OSError(errno.EIO, "it has become shorter while it was read")
        return self._block[start - self._start : end - self._start]

    def find(self, searched: bytes, start: int) -> int:
        """Return the offset of some bytes from `start` on; -1 if there are none."""
        while start + len(searched) <= self._size:
            block = self[start : start + _BLOCK_BYTES]
            found: int = block.find(searched)
            if found >= 0:
                return start + found
            start += len(block) - len(searched) + 1
        return -1
