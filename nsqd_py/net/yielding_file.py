"""The file of a socket whose other side never pauses."""

from __future__ import annotations

import io
from time import perf_counter
from typing import Any

import gevent

_LONGEST_S = 0.002


class YieldingFile(io.RawIOBase):
    """Reads from the raw file of a socket of gevent, and lets other greenlets run every 2 ms.

    While there is something to read, gevent's sockets do not yield; then neither a time-out nor anybody else runs.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._since_s = perf_counter()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if perf_counter() - self._since_s > _LONGEST_S:
            gevent.sleep(0)
            self._since_s = perf_counter()
        count: int | None = self._file.readinto(buffer)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def yielding_reader(sock: Any, buffer_bytes: int) -> io.BufferedReader:
    """A buffered reader of a socket. What is parsed of one buffer delays all others, so it should be small."""
    return io.BufferedReader(YieldingFile(sock.makefile("rb", 0)), buffer_bytes)
