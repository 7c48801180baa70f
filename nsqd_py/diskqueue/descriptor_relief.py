"""What happens when all files that may be open wait for a sync: they are synced at once, and writers wait for that."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import gevent.event
import gevent.lock

from nsqd_py.diskqueue.open_files import OPEN_FILES

_LONGEST_WAIT_S = 30.0
_SYNCED_AT_ONCE = 32
_OPENED_AT_ONCE = 8


class DescriptorRelief:
    """Lets those who write to files that are not open wait until one can be opened.

    hurry  begins to sync up to so many topics
    """

    def __init__(self, hurry: Callable[[int], None]) -> None:
        self._hurry = hurry
        self._synced = gevent.event.Event()
        # Those who were let in have not opened their files yet.
        self._turns = gevent.lock.Semaphore(_OPENED_AT_ONCE)

    def watch(self) -> None:
        """Begin. The limit of descriptors is the one of this moment."""
        OPEN_FILES.use_limit()
        OPEN_FILES.on_full = self._on_full

    @contextmanager
    def room(self) -> Iterator[None]:
        """Enter when a file may be opened. Raises OSError when that takes too long. Blocks this greenlet."""
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
        """A topic was synced: its files may be closed."""
        self._synced.set()

    def _on_full(self) -> None:
        self._hurry(_SYNCED_AT_ONCE)


def _too_many() -> OSError:
    return OSError(errno.EMFILE, "too many open files, and the disk does not take what was written to them")
