"""The limit of file descriptors: writers wait while all open files wait for a sync."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from time import monotonic
from typing import Any

import gevent
import gevent.event

from nsqd_py.diskqueue.files.open_files import OPEN_FILES

# Writers wait this long for a descriptor; this many of them open files at a time; this many topics are synced for them.
_LONGEST_WAIT_S = 30.0
_OPENED_AT_ONCE = 8
_SYNCED_AT_ONCE = 32


class DescriptorRelief:
    """Makes writers wait for a descriptor when all open files wait for a sync, and begins those syncs at once.

    flush  begins to sync up to the given number of topics
    """

    def __init__(self, flush: Callable[[int], None]) -> None:
        self._flush = flush
        self._synced = gevent.event.Event()

    @cached_property
    def _turns(self) -> Any:
        """Held by writers that have not opened their files yet."""
        from gevent.lock import Semaphore  # 1.1 MB of a start, see `GreenletLock`

        return Semaphore(_OPENED_AT_ONCE)

    def watch(self) -> None:
        """Begin, with the descriptor limit of this moment."""
        OPEN_FILES.use_limit()
        OPEN_FILES.on_full = partial(self._flush, _SYNCED_AT_ONCE)
        loop = gevent.get_hub().loop
        OPEN_FILES.on_crowded = partial(loop.run_callback_threadsafe, OPEN_FILES.make_room)

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


def _too_many() -> OSError:
    return OSError(errno.EMFILE, "too many open files, and the disk is too slow to sync some for closing")
