"""How much of the disk is free. The event loop asks the disk itself while it is quick, else a thread does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gevent

from nsqd_py.diskqueue.call_timing import CallTimer
from nsqd_py.diskqueue.disk_pace import DiskPace
from nsqd_py.runtime.threads import in_thread

UNLIMITED = 1 << 62


class FreeSpace:
    """The free bytes of the disk that a directory is on."""

    def __init__(self, directory: Path, pace: DiskPace, threadpool: Any) -> None:
        self._directory = directory
        self._pace = pace
        self._threadpool = threadpool
        self._last_bytes = UNLIMITED
        self._greenlet: Any = None

    def __call__(self) -> int:
        """Return the free bytes; while the disk is slow, those of the time when it answered last."""
        if not self._pace.attempt(self._look) and self._greenlet is None:
            self._greenlet = gevent.spawn(self._look_in_thread)
        return self._last_bytes

    def _look(self) -> None:
        try:
            figures = os.statvfs(self._directory)
        except OSError:  # the write itself will say
            self._last_bytes = UNLIMITED
        else:
            self._last_bytes = figures.f_bavail * figures.f_frsize

    def _look_in_thread(self) -> None:
        timer = CallTimer()
        self._pace.begin(self)
        try:
            in_thread(self._threadpool, self._look_timed, timer)
        finally:
            self._greenlet = None
            self._pace.end(self, timer.slowest_ns)

    def _look_timed(self, timer: CallTimer) -> None:
        with timer:
            self._look()
