"""Standard input in large chunks: files, pipes and terminals, without blocking the event loop."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator

import gevent
from gevent.event import Event

from nsqd_py.runtime.process import StopSignals
from nsqd_py.runtime.threads import in_thread

_READABLE = 1
_PIPE_BYTES = 1 << 20


class Input:
    """A descriptor that is read until its end, or until a stop signal.

    total_bytes  size of a file from the current position on; None for a pipe or a terminal
    """

    def __init__(self, descriptor: int, stop: StopSignals) -> None:
        """Raises OSError for a descriptor that is not open."""
        self._descriptor = descriptor
        self._stop = stop
        status = os.fstat(descriptor)
        self._is_file = stat.S_ISREG(status.st_mode)
        self.total_bytes = status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR) if self._is_file else None
        if stat.S_ISFIFO(status.st_mode):
            _widen(descriptor)

    def chunks(self, max_bytes: int) -> Iterator[bytes]:
        """Yield data as soon as it is available, at most `max_bytes` at a time. Raises OSError."""
        return self._chunks_of_file(max_bytes) if self._is_file else self._chunks_of_stream(max_bytes)

    def _chunks_of_file(self, max_bytes: int) -> Iterator[bytes]:
        # The event loop cannot wait for a file, and its disk may be slow, so a thread reads it.
        pool, chunks = gevent.get_hub().threadpool, [b"-"]
        while not self._stop.is_asked and chunks.pop():
            in_thread(pool, lambda: chunks.append(os.read(self._descriptor, max_bytes)))
            if chunks[0]:
                yield chunks[0]

    def _chunks_of_stream(self, max_bytes: int) -> Iterator[bytes]:
        wake = Event()
        ready = gevent.get_hub().loop.io(self._descriptor, _READABLE)
        stopper = gevent.spawn(self._wake_at_stop, wake)
        try:
            while self._wait(ready, wake) and (chunk := os.read(self._descriptor, max_bytes)):
                yield chunk
        finally:
            stopper.kill()
            ready.close()

    def _wait(self, ready: object, wake: Event) -> bool:
        """Wait for data or the end of the input. Return False on a stop signal."""
        wake.clear()
        ready.start(wake.set)  # type: ignore[attr-defined]  # a watcher of the loop has no public type
        if not self._stop.is_asked:
            wake.wait()
        ready.stop()  # type: ignore[attr-defined]
        return not self._stop.is_asked

    def _wake_at_stop(self, wake: Event) -> None:
        self._stop.wait()
        wake.set()


def _widen(descriptor: int) -> None:
    """Enlarge a pipe from 64 KiB to 1 MiB, if the system allows it: writer and reader then switch less often."""
    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
