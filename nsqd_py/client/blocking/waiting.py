"""Waiting that an exception of a signal handler, such as Ctrl-C, cannot break, and a queue of work on it.

Such an exception comes between any two steps of the main thread's Python code. `threading.Condition` and
`threading.Event` are written in Python and hold a lock that other threads need: at the wrong step it stays locked.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import Any, Generic, TypeVar

from nsqd_py.client.blocking.backend import Backend

_POLL_S = 1.0  # a child process does not have the thread that would wake its threads


class Waiters:
    """Threads that wait, each for a lock that no other thread takes. Those who wake them hold no lock."""

    __slots__ = ("_locks", "_make_lock")

    def __init__(self, make_lock: Callable[[], Any]) -> None:
        self._make_lock = make_lock
        self._locks: deque[Any] = deque()

    def wait(self, is_over: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Return True when woken, or at once if `is_over` returns true; False after the time-out."""
        lock = self._make_lock()
        lock.acquire()
        self._locks.append(lock)
        try:
            # `is_over` after the append: the thread that makes it true wakes this one from then on.
            return bool(is_over()) or lock.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s))
        finally:
            if lock in self._locks:  # checked first: an error that is handled here would be the context of Ctrl-C
                with suppress(ValueError):  # it is being woken
                    self._locks.remove(lock)

    def wait_until(self, is_true: Callable[[], bool], timeout_s: float | None) -> bool:
        """Return True as soon as `is_true()`, or False after the time-out. What makes it true calls `wake_all`."""
        ends_s = math.inf if timeout_s is None else monotonic() + timeout_s
        while not is_true():
            left_s = ends_s - monotonic()
            if left_s <= 0:
                return False
            self.wait(is_true, min(left_s, _POLL_S))
        return True

    def wake(self) -> bool:
        """Wake the thread that has waited longest. Return False if none waits."""
        if not self._locks:
            return False
        with suppress(IndexError):  # another thread was faster
            self._locks.popleft().release()
        return True

    def wake_all(self) -> None:
        while self.wake():
            pass


class Latch:
    """An event that happens once."""

    __slots__ = ("_waiters", "is_set")

    def __init__(self, make_lock: Callable[[], Any]) -> None:
        self._waiters = Waiters(make_lock)
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
        self._waiters.wake_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return True once it has happened, False after the time-out."""
        self._waiters.wait(lambda: self.is_set, timeout_s)
        return self.is_set


Item = TypeVar("Item")


class WorkQueue(Generic[Item]):
    """Items for idle workers. `take` waits for one.

    Many items wake one worker, which wakes the next one before it begins if there is more to do. So handlers that never
    wait do all work in one worker, and handlers that wait use all of them.
    """

    __slots__ = ("_idle", "_is_closed", "_items", "_until_empty", "_yield_if_due")

    def __init__(self, backend: Backend) -> None:
        self._items: deque[Item] = deque()
        self._idle = Waiters(backend.make_lock)
        self._until_empty = Waiters(backend.make_lock)
        self._yield_if_due = backend.yield_if_due
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
        if self._yield_if_due is not None:
            self._yield_if_due()
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
        try:
            was_woken = self._idle.wait(lambda: self._items or self._is_closed, timeout_s)
        except BaseException:
            self._idle.wake()  # it may have been woken for an item
            raise
        if len(self._items) > 1:
            self._idle.wake()
        return was_woken
