"""Standard output, written by a thread."""

from __future__ import annotations

import fcntl
import os
import select
import sys
from typing import Any

from gevent.hub import Waiter

from nsqd_py.runtime.threads import DiskThreads
from nsqd_py.settings.program import ToolError

# Time at the stop for writing the messages that have arrived.
LAST_WRITES_S = 2.0
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def open_output() -> Output:
    """Return standard output. Raises ToolError if it is closed."""
    descriptor = sys.stdout.fileno()
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise ToolError("standard output is closed")
    return Output(descriptor)


class Output:
    """A descriptor that a thread writes to, so that a slow reader does not block the event loop and heartbeats."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # A separate pool: name resolution must not wait for the reader of a pipe.
        self._writer = DiskThreads(1)
        self._writer.serve()
        self._poll = select.poll()
        self._poll.register(descriptor, 0)

    def write(self, data: bytes) -> None:
        """Write all of it, while other greenlets run. Raises OSError."""
        if data:
            waiter: Any = Waiter()
            # Not `apply`: a greenlet that is cut off at the stop must not wait for a reader that takes nothing.
            self._writer.begin(_write_all, (self._descriptor, data), waiter.switch)
            waiter.get().end()

    def check_reader(self) -> None:
        """Raise BrokenPipeError if the other end is closed. Does not write."""
        if any(event & _GONE for _, event in self._poll.poll(0)):
            raise BrokenPipeError


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another process that shares the descriptor has made it non-blocking
            select.select((), (descriptor,), ())
