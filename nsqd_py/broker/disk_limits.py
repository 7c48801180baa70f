"""The limits of the disk and the process: free space, file descriptors, and write errors that last."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import gevent.event
import gevent.lock

from nsqd_py.diskqueue.open_files import OPEN_FILES
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.disk_pace import CallTimer, DiskPace
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.threads import in_thread

_CAUSES = _WRITE, _SYNC, _POSITION = "write", "sync", "position"


class DiskHealth:
    """The write errors that last, by topic and by what could not be written.

    write_errors  number of failed writes to logs
    """

    def __init__(self, log: Log) -> None:
        self.write_errors = 0
        self._log = log
        self._errors: dict[tuple[str, Topic], OSError] = {}

    @property
    def problem(self) -> OSError | None:
        """Return the first error; None if there is none."""
        return next(iter(self._errors.values()), None)

    def errors(self) -> Iterator[tuple[Topic, OSError]]:
        """Yield each topic with an error that lasts, and the error."""
        for (_, topic), error in self._errors.items():
            yield topic, error

    def written(self, topic: Topic, error: OSError | None) -> None:
        """Record the result of a write to the topic's log."""
        self._note((_WRITE, topic), error)
        if error is not None:
            self.write_errors += 1

    def synced(self, topic: Topic, error: OSError | None) -> None:
        """Record the result of a sync of the topic's log."""
        if error is not None and error is not self._errors.get((_SYNC, topic)):  # the same error is logged once
            self._log.of_clients.error("TOPIC(%s): failed to sync - %s", topic.name, error)
        self._note((_SYNC, topic), error)

    def position_saved(self, topic: Topic, error: OSError | None) -> None:
        """Record the result of writing the position of one of its channels."""
        self._note((_POSITION, topic), error)

    def position_failed(self, topic: Topic, error: OSError) -> None:
        """Record that the topic's own position could not be written."""
        self._note((_POSITION, topic), error)
        self._log.of_clients.error("TOPIC(%s): failed to write its position - %s", topic.name, error)

    def forget(self, topic: Topic) -> None:
        for cause in _CAUSES:
            self._errors.pop((cause, topic), None)

    def _note(self, place: tuple[str, Topic], error: OSError | None) -> None:
        """Set or clear an error. A success also clears the write errors of topics without publishers now."""
        if error is not None:
            self._errors[place] = error.with_traceback(None)  # not the frames: they hold the messages of the write
        elif self._errors:
            self._errors.pop(place, None)
            for failed in [failed for failed in self._errors if failed[0] == _WRITE]:
                del self._errors[failed]


UNLIMITED = 1 << 62


class FreeSpace:
    """Measures the free space of the disk that holds a directory. `total_bytes` is its size, 0 until it is known.

    The event loop asks the disk itself while it is fast, else a thread does.
    """

    def __init__(self, directory: Path, pace: DiskPace, threadpool: Any) -> None:
        self._directory = directory
        self._pace = pace
        self._threadpool = threadpool
        self._last_bytes = UNLIMITED
        self.total_bytes = 0
        self._greenlet: Any = None

    def __call__(self) -> int:
        """Return the free bytes; while the disk is slow, the last known number."""
        if not self._pace.attempt(self._look) and self._greenlet is None:
            self._greenlet = gevent.spawn(self._look_in_thread)
        return self._last_bytes

    def _look(self) -> None:
        try:
            statistics = os.statvfs(self._directory)
        except OSError:  # the write itself will report it
            self._last_bytes = UNLIMITED
        else:
            self._last_bytes = statistics.f_bavail * statistics.f_frsize
            self.total_bytes = statistics.f_blocks * statistics.f_frsize

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


_LONGEST_WAIT_S = 30.0
_SYNCED_AT_ONCE = 32
_OPENED_AT_ONCE = 8


class DescriptorRelief:
    """Makes writers wait for a descriptor when all open files wait for a sync, and begins those syncs at once.

    hurry  begins to sync up to the given number of topics
    """

    def __init__(self, hurry: Callable[[int], None]) -> None:
        self._hurry = hurry
        self._synced = gevent.event.Event()
        # Writers that hold it have not opened their files yet.
        self._turns = gevent.lock.Semaphore(_OPENED_AT_ONCE)

    def watch(self) -> None:
        """Begin, with the descriptor limit of this moment."""
        OPEN_FILES.use_limit()
        OPEN_FILES.on_full = self._on_full

    @contextmanager
    def room(self) -> Iterator[None]:
        """Wait until a file may be opened. Raises OSError after 30 s. Blocks this greenlet."""
        deadline_s = monotonic() + _LONGEST_WAIT_S
        if not self._turns.acquire(timeout=_LONGEST_WAIT_S):
            raise _too_many()
        try:
            self._wait(deadline_s)
            yield
        finally:
            self._turns.release()

    def _wait(self, deadline_s: float) -> None:
        while not OPEN_FILES.has_room():
            self._synced.clear()
            if not self._synced.wait(max(0.0, deadline_s - monotonic())):
                raise _too_many()

    def synced(self) -> None:
        """Wake the waiting writers: a topic was synced, so its files may be closed."""
        self._synced.set()

    def _on_full(self) -> None:
        self._hurry(_SYNCED_AT_ONCE)


def _too_many() -> OSError:
    return OSError(errno.EMFILE, "too many open files, and the disk is too slow to sync some for closing")
