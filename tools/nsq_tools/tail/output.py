"""Standard output, written by a thread: who reads it slowly holds up one greenlet, and no heartbeat."""

from __future__ import annotations

import os
import select

from gevent.threadpool import ThreadPool

_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Output:
    """A descriptor to write to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # A pool of its own with one thread: resolving names must not wait behind a pipe that nobody reads.
        self._writer = ThreadPool(1)
        self._poll = select.poll()
        self._poll.register(descriptor, 0)

    def write(self, data: bytes) -> None:
        """Returns when all of it is written; other greenlets run meanwhile. Raises OSError."""
        if data:
            self._writer.apply(_write_all, (self._descriptor, data))

    def is_reader_gone(self) -> bool:
        """Whether nobody can read any more what is written; known without writing."""
        return any(event & _GONE for _, event in self._poll.poll(0))


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # somebody who shares the descriptor has made it so
            select.select((), (descriptor,), ())
