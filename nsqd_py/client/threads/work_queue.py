"""A queue of work for threads with few wake-ups."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class WorkQueue(Generic[Item]):
    """Items for idle workers. `take` waits for one.

    Many items wake one thread, which wakes the next one before it begins if there is more to do. So handlers that never
    wait do all work in one thread, and handlers that wait use all threads.
    """

    __slots__ = ("_has_items", "_idle_count", "_is_closed", "_is_empty", "_items")

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        lock = threading.Lock()
        self._has_items = threading.Condition(lock)
        self._is_empty = threading.Condition(lock)
        self._idle_count = 0
        self._is_closed = False

    def put_all(self, items: Iterable[Item]) -> None:
        with self._has_items:
            self._items.extend(items)
            if self._idle_count:
                self._has_items.notify()

    def wait_until_empty(self, timeout_s: float) -> None:
        """Wait until a worker has found the queue empty, or for `timeout_s`."""
        if self._items:
            with self._is_empty:
                self._is_empty.wait_for(lambda: not self._items, timeout_s)

    def clear(self) -> list[Item]:
        """Remove and return the items that no worker has taken."""
        with self._has_items:
            items = list(self._items)
            self._items.clear()
            return items

    def close(self) -> None:
        """Close the queue: `take` returns None once it is empty."""
        with self._has_items:
            self._is_closed = True
            self._has_items.notify_all()

    def take(self, timeout_s: float | None = None) -> Item | None:
        """Return the next item; None after the time-out, or once the queue is closed and empty."""
        try:
            return self._items.popleft()  # without the lock: a busy worker never waits for it
        except IndexError:
            return self._wait(timeout_s)

    def _wait(self, timeout_s: float | None) -> Item | None:
        with self._has_items:
            self._idle_count += 1
            self._is_empty.notify()
            try:
                self._has_items.wait_for(lambda: self._items or self._is_closed, timeout_s)
            finally:
                self._idle_count -= 1
            if not self._items:
                return None
            if len(self._items) > 1 and self._idle_count:
                self._has_items.notify()
            return self._items.popleft()
