"""A socket file that lets other greenlets run while the peer sends without pause."""

from __future__ import annotations

import io
from time import perf_counter
from typing import Any

import gevent

_MAX_RUN_S = 0.002


class YieldingFile(io.RawIOBase):
    """Reads from the raw file of a socket of gevent, and lets other greenlets run every 2 ms.

    gevent's sockets do not yield while there is something to read: neither time-outs nor other greenlets would run.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._resumed_s = perf_counter()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if perf_counter() - self._resumed_s > _MAX_RUN_S:
            gevent.sleep(0)
            self._resumed_s = perf_counter()
        count: int | None = self._file.readinto(buffer)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def yielding_reader(sock: Any, buffer_bytes: int) -> io.BufferedReader:
    """Return a buffered reader of a socket. Parsing a full buffer delays other greenlets, so it should be small."""
    return io.BufferedReader(YieldingFile(sock.makefile("rb", 0)), buffer_bytes)
