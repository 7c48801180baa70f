"""Writing log lines to a descriptor. A full pipe, a closed pipe or a slow disk never stops the queue."""

from __future__ import annotations

import os
import select
import stat
from collections import deque
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic

# A pipe that poll() reports as writable takes this many bytes without blocking (PIPE_BUF on Linux); sockets take more.
_PIECE_BYTES = 4096
KEPT_BYTES = 256 * 1024
_SLOW_S = 0.05


class LineSink:
    """Writes whole lines. Lines that the reader does not take are kept, up to `KEPT_BYTES`; later lines are lost.

    The descriptor stays in blocking mode, because other processes share it. The sink asks poll() before each 4 kB,
    which costs 0.5 us.
    """

    __slots__ = ("_descriptor", "_file", "_poll", "_unsent", "lost_count")

    def __init__(self, descriptor: int) -> None:
        self.lost_count = 0
        self._descriptor = descriptor
        self._unsent = b""
        self._poll = _poll_of(descriptor)
        self._file = _File(descriptor)

    @property
    def is_clogged(self) -> bool:
        """True if lines are kept that the reader did not take."""
        return bool(self._unsent) or self._file.waiting_bytes > 0

    def write(self, lines: bytes) -> None:
        """Write lines, or keep them. Raises nothing: if the disk is full or the pipe closed, the lines are lost."""
        data = self._unsent + lines if self._unsent else lines
        try:
            self._unsent = self._write(data)
        except OSError:
            self._unsent = b""
        if len(self._unsent) > KEPT_BYTES:
            self._cut()

    def _write(self, data: bytes) -> bytes:
        """Write as much as possible without waiting, and return the rest. Raises OSError."""
        poll = self._poll
        if poll is None:
            if self._file.waiting_bytes + len(data) > KEPT_BYTES and self._file.waiting_bytes:
                self.lost_count += data.count(b"\n")
            else:
                self._file.write(data)
            return b""
        start = 0
        with suppress(BlockingIOError):
            while start < len(data) and poll.poll(0):
                start += os.write(self._descriptor, data[start : start + _PIECE_BYTES])
        return data[start:]

    def _cut(self) -> None:
        """Drop the newest lines. None is cut."""
        end = self._unsent.rfind(b"\n", 0, KEPT_BYTES) + 1 or self._unsent.find(b"\n") + 1
        self.lost_count += self._unsent.count(b"\n", end)
        self._unsent = self._unsent[:end]


class _File:
    """A log file, perhaps on a slow disk. After a slow write, a thread writes, until a write was quick.

    waiting_bytes: the bytes that the thread has not written yet.
    """

    __slots__ = ("_descriptor", "_is_slow", "_lock", "_thread", "_waiting", "waiting_bytes")

    def __init__(self, descriptor: int) -> None:
        self.waiting_bytes = 0
        self._descriptor = descriptor
        self._is_slow = False
        self._lock = Lock()
        self._waiting: deque[bytes] = deque()
        self._thread: Thread | None = None

    def write(self, data: bytes) -> None:
        """Write now, or later in a thread. Raises OSError if a write in this thread failed."""
        if not self._is_slow and not self.waiting_bytes:
            self._write_timed(data)
            return
        with self._lock:
            self._waiting.append(data)
            self.waiting_bytes += len(data)
            if self._thread is None:
                # Not a daemon thread: the program ends after the last line is written.
                self._thread = Thread(target=self._write_waiting, name="log")
                self._thread.start()

    def _write_timed(self, data: bytes) -> None:
        began_s = monotonic()
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        finally:
            self._is_slow = monotonic() - began_s >= _SLOW_S

    def _write_waiting(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                data = self._waiting.popleft()
            with suppress(OSError):  # on a full disk the lines are lost
                self._write_timed(data)
            with self._lock:
                self.waiting_bytes -= len(data)


def _poll_of(descriptor: int) -> select.poll | None:
    """Return a poll object that reports whether the descriptor is writable; None for a file, which always is."""
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
    except OSError:  # closed
        return None
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return poll
