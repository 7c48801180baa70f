"""Bounds the memory of long answers that clients have not read yet."""

from __future__ import annotations

import time
from collections import Counter

from gevent.event import Event

from nsqd_py.net.addresses import host_of

# Handlers of long answers that run at the same time. The size of an answer is unknown until its handler returns.
MOST_RUNNING = 2
MOST_UNREAD_BYTES = 32 * 1024 * 1024
# The part for the clients of one address, so that one address does not keep others from reading.
MOST_UNREAD_OF_ADDRESS = MOST_UNREAD_BYTES // 4
WAIT_S = 10.0


class ResponseLimiter:
    """Admits requests with long answers while few bytes of such answers are unread.

    An answer counts from its encoding until the client's socket has accepted it. The bound is exceeded by at most
    the MOST_RUNNING answers that were admitted before it was reached.
    """

    def __init__(self) -> None:
        self.unread_bytes = 0
        self._unread_of: Counter[str] = Counter()
        self._running = 0
        self._changed = Event()

    def is_open(self, peer: str) -> bool:
        """True if a request of this client may run now."""
        return self._running < MOST_RUNNING and self.has_room(peer)

    def has_room(self, peer: str) -> bool:
        """True if the unread answers are below the bounds, in total and for the client's address."""
        return (
            self.unread_bytes < MOST_UNREAD_BYTES
            and self._unread_of.get(host_of(peer), 0) < MOST_UNREAD_OF_ADDRESS
        )

    def enter(self, peer: str, wait_s: float = WAIT_S) -> bool:
        """Wait until a request of this client may run, and count it as running. False if `wait_s` pass before."""
        end_s = time.monotonic() + wait_s
        while not self.is_open(peer):
            self._changed.clear()
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not self._changed.wait(left_s):
                return False
        self._running += 1
        return True

    def leave(self) -> None:
        """End the request that `enter` counted."""
        self._running -= 1
        self._changed.set()

    def count(self, peer: str, change_bytes: int) -> None:
        """Count bytes of an answer to this client as unread, or below 0 those that it has read, or will not read."""
        host = host_of(peer)
        self.unread_bytes += change_bytes
        self._unread_of[host] += change_bytes
        if not self._unread_of[host]:
            del self._unread_of[host]
        self._changed.set()
