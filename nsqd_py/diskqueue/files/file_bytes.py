"""The bytes of a file, read as they are needed.

Files are not mapped into memory: an unreadable sector, or an end that another program cuts off in the meantime, would end
the process with SIGBUS, without a word.
"""

from __future__ import annotations

import os

_SMALLEST_READ = 4 * 1024
_LARGEST_READ = 256 * 1024
# Files up to this size are read at once: at a start with 20,000 topics, most are small.
_SMALL_BYTES = 64 * 1024


class FileBytes:
    """A `Data` over a descriptor, for one thread. Its methods raise OSError, with the position, if the disk cannot read.

    Bytes that are cut off in the meantime are zeros, as in a file that has space for more. Reads that follow each other
    grow, and a walk over headers that are far apart reads little more than these.
    """

    __slots__ = ("_begin", "_end", "_fd", "_read_size", "_size", "_window")

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._begin = 0
        self._end = 0
        self._window = b""
        self._read_size = size if size <= _SMALL_BYTES else _SMALLEST_READ

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        start = part.start
        stop = part.stop
        # 0.3 us less.
        if start is not None and stop is not None and self._begin <= start and stop <= self._end:
            return self._window[start - self._begin : stop - self._begin]
        start, stop, _ = part.indices(self._size)
        if stop - start > _LARGEST_READ:
            return self._read(start, stop)
        window, begin = self.window(start, stop - start)
        return window[start - begin : stop - begin]

    def window(self, position: int, size: int) -> tuple[bytes, int]:
        """Return bytes that have the `size` from `position` on in them, or all up to the end, and the position of the first."""
        if not self._begin <= position <= min(position + size, self._size) <= self._end:
            follows = self._begin <= position <= self._end + _SMALLEST_READ
            self._read_size = min(2 * self._read_size, _LARGEST_READ) if follows else _SMALLEST_READ
            end = min(position + max(size, self._read_size), self._size)
            self._window = self._read(position, end)
            self._begin = position
            self._end = end
        return self._window, self._begin

    def find(self, pattern: bytes, start: int, /) -> int:
        """Return the first position of these bytes, of which there are few, from `start` on; -1 if they are not there."""
        while start + len(pattern) <= self._size:
            window, begin = self.window(start, len(pattern))
            found = window.find(pattern, start - begin)
            if found >= 0:
                return begin + found
            start = begin + len(window) - len(pattern) + 1
        return -1

    def _read(self, position: int, end: int) -> bytes:
        pieces = []
        while position < end:
            try:
                piece = os.pread(self._fd, end - position, position)
            except OSError as error:
                raise OSError(
                    error.errno, f"{error.strerror} at byte {position}", _name_of(self._fd)
                ) from error
            piece = piece or bytes(end - position)
            pieces.append(piece)
            position += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _name_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")
