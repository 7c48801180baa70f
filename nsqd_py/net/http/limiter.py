"""Bounds the memory of long answers that clients have not read yet."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from gevent import getcurrent
from gevent.event import Event

from nsqd_py.errors import HttpError
from nsqd_py.net.addresses import host_of

# Handlers of long answers that run at the same time. The size of an answer is unknown until its handler returns.
MOST_RUNNING = 2
# Handlers that run besides these, since they wait for another machine.
MOST_REMOTE = 2
MOST_UNREAD_BYTES = 32 * 1024 * 1024
# The part for the clients of one address, so that one address does not keep others from reading.
MOST_UNREAD_OF_ADDRESS = MOST_UNREAD_BYTES // 4
WAIT_S = 10.0


class ResponseLimiter:
    """Admits requests with long answers while few bytes of such answers are unread.

    An answer counts from its encoding until the client's socket has accepted it. The bound is exceeded by at most
    the MOST_RUNNING + MOST_REMOTE answers that were admitted before it was reached. The greenlets of running handlers
    identify them; only the event loop uses this.
    """

    def __init__(self) -> None:
        self.unread_bytes = 0
        self._unread_of: Counter[str] = Counter()
        self._running: list[Any] = []
        self._remote: list[Any] = []
        self._changed = Event()

    def is_open(self, peer: str) -> bool:
        """True if a request of this client may run now."""
        return len(self._running) < MOST_RUNNING and self.has_room(peer)

    def has_room(self, peer: str) -> bool:
        """True if the unread answers are below the bounds, in total and for the client's address."""
        return (
            self.unread_bytes < MOST_UNREAD_BYTES
            and self._unread_of.get(host_of(peer), 0) < MOST_UNREAD_OF_ADDRESS
        )

    def enter(self, peer: str, wait_s: float = WAIT_S) -> bool:
        """Wait until a request of this client may run, and count it as running. False if `wait_s` pass before."""
        if not self._wait_until(lambda: self.is_open(peer), wait_s):
            return False
        self._running.append(getcurrent())
        return True

    def make_remote(self, wait_s: float = WAIT_S) -> None:
        """Let another request run in place of the one of this greenlet, which now waits for another machine.

        At most MOST_REMOTE requests do so, each until it leaves; a greenlet without a running request is not counted. Raises
        HttpError if none of them leaves in time.
        """
        this = getcurrent()
        if this not in self._running:
            return
        self._running.remove(this)
        self._changed.set()
        if not self._wait_until(lambda: len(self._remote) < MOST_REMOTE, wait_s):
            raise HttpError(503, "TOO_MANY_READERS")
        self._remote.append(this)

    def _wait_until(self, is_true: Callable[[], bool], wait_s: float) -> bool:
        end_s = time.monotonic() + wait_s
        while not is_true():
            self._changed.clear()
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not self._changed.wait(left_s):
                return False
        return True

    def leave(self) -> None:
        """End the request of this greenlet, which `enter` has counted."""
        this = getcurrent()
        for places in (self._running, self._remote):
            if this in places:
                places.remove(this)
        self._changed.set()

    def count(self, peer: str, change_bytes: int) -> None:
        """Count bytes of an answer to this client as unread, or below 0 those that it has read, or will not read."""
        host = host_of(peer)
        self.unread_bytes += change_bytes
        self._unread_of[host] += change_bytes
        if not self._unread_of[host]:
            del self._unread_of[host]
        self._changed.set()
