"""Bounds the memory that long answers take until their clients have read them."""

from __future__ import annotations

import time
from collections import Counter

from gevent.event import Event

from nsqd_py.net.addresses import host_of

# Handlers of long answers at work at a time: each may hold an answer that nobody has asked the size of before.
MOST_RUNNING = 2
MOST_UNREAD_BYTES = 32 * 1024 * 1024
# Of these, what the clients of one address may leave unread, so that one of them does not keep the others away.
MOST_UNREAD_OF_ADDRESS = MOST_UNREAD_BYTES // 4
WAIT_S = 10.0


class AnswerRoom:
    """Admits requests with long answers while there is room for their answers.

    An answer counts from when it is made until the client's socket has taken it. The bound is exceeded by at most
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
        """True if the answers that clients have not read leave room for one to this client."""
        return (
            self.unread_bytes < MOST_UNREAD_BYTES
            and self._unread_of.get(host_of(peer), 0) < MOST_UNREAD_OF_ADDRESS
        )

    def enter(self, peer: str, wait_s: float = WAIT_S) -> bool:
        """Wait until a request of this client may run, and count it as running; False if that takes too long."""
        end_s = time.monotonic() + wait_s
        while not self.is_open(peer):
            self._changed.clear()
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not self._changed.wait(left_s):
                return False
        self._running += 1
        return True

    def leave(self) -> None:
        """End what `enter` began."""
        self._running -= 1
        self._changed.set()

    def add(self, peer: str, size_bytes: int) -> None:
        """Count an answer that this client has not read."""
        self.unread_bytes += size_bytes
        self._unread_of[host_of(peer)] += size_bytes

    def remove(self, peer: str, size_bytes: int) -> None:
        """The client has read it, or is gone."""
        self.unread_bytes -= size_bytes
        host = host_of(peer)
        self._unread_of[host] -= size_bytes
        if not self._unread_of[host]:
            del self._unread_of[host]
        self._changed.set()
