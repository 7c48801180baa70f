"""A queue of work for threads with few wake-ups."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from nsqd_py.client.threads.waiters import Waiters

Item = TypeVar("Item")


class WorkQueue(Generic[Item]):
    """Items for idle workers. `take` waits for one.

    Many items wake one thread, which wakes the next one before it begins if there is more to do. So handlers that never
    wait do all work in one thread, and handlers that wait use all threads.
    """

    __slots__ = ("_idle", "_is_closed", "_items", "_until_empty")

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._idle = Waiters()
        self._until_empty = Waiters()
        self._is_closed = False

    def put_all(self, items: Iterable[Item]) -> None:
        self._items.extend(items)
        self._idle.wake()

    def wait_until_empty(self, timeout_s: float) -> None:
        """Wait until a worker has found the queue empty, or for `timeout_s`."""
        if self._items:
            self._until_empty.wait(lambda: not self._items, timeout_s)

    def clear(self) -> list[Item]:
        """Remove and return the items that no worker has taken."""
        items = []
        while self._items:
            try:
                items.append(self._items.popleft())
            except IndexError:  # a worker was faster
                break
        return items

    def close(self) -> None:
        """Close the queue: `take` returns None once it is empty."""
        self._is_closed = True
        self._idle.wake_all()

    def take(self, timeout_s: float | None = None) -> Item | None:
        """Return the next item; None after the time-out, or once the queue is closed and empty."""
        while True:
            is_closed = self._is_closed  # before looking for items: none are added after it
            try:
                return self._items.popleft()
            except IndexError:
                pass  # what waits does so outside of this exception: it would be shown as the context of Ctrl-C
            if is_closed or not self._wait(timeout_s):
                return None

    def _wait(self, timeout_s: float | None) -> bool:
        """Return False after the time-out."""
        self._until_empty.wake()
        was_woken = self._idle.wait(lambda: self._items or self._is_closed, timeout_s)
        if len(self._items) > 1:
            self._idle.wake()
        return was_woken
