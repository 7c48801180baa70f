"""Where log lines go: a descriptor that may be full or closed, which must never stop the queue."""

from __future__ import annotations

import os
import select
import stat
from contextlib import suppress

# What a pipe that poll() calls writable takes without blocking (PIPE_BUF on Linux); sockets take more.
_PIECE_BYTES = 4096
KEPT_BYTES = 256 * 1024


class LineSink:
    """Writes whole lines. What its reader does not take is kept, up to `KEPT_BYTES`; later lines are lost.

    The descriptor keeps its mode: others have it too, and O_NONBLOCK would be theirs as well. So what can block is
    asked before each piece of 4 kB, which costs 0.5 us.
    """

    __slots__ = ("_descriptor", "_poll", "_unsent", "lost_count")

    def __init__(self, descriptor: int) -> None:
        self.lost_count = 0
        self._descriptor = descriptor
        self._unsent = b""
        self._poll = _poll_of(descriptor)

    @property
    def is_clogged(self) -> bool:
        """Whether something is kept that the reader did not take."""
        return bool(self._unsent)

    def write(self, lines: bytes) -> None:
        """Raises nothing: a full disk or a closed pipe swallows the lines."""
        data = self._unsent + lines if self._unsent else lines
        try:
            self._unsent = self._write(data)
        except OSError:
            self._unsent = b""
        if len(self._unsent) > KEPT_BYTES:
            self._cut()

    def _write(self, data: bytes) -> bytes:
        """Write what goes without waiting; the rest. Raises OSError."""
        poll = self._poll
        if poll is None:
            while data:
                data = data[os.write(self._descriptor, data) :]
            return b""
        start = 0
        with suppress(BlockingIOError):
            while start < len(data) and poll.poll(0):
                start += os.write(self._descriptor, data[start : start + _PIECE_BYTES])
        return data[start:]

    def _cut(self) -> None:
        """Lose the newest lines, and none in part."""
        end = self._unsent.rfind(b"\n", 0, KEPT_BYTES) + 1 or self._unsent.find(b"\n") + 1
        self.lost_count += self._unsent.count(b"\n", end)
        self._unsent = self._unsent[:end]


def _poll_of(descriptor: int) -> select.poll | None:
    """What tells whether the descriptor takes anything now; None for a file, which always does."""
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
    except OSError:  # closed
        return None
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return poll
