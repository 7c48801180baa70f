"""Waiting that an exception of a signal handler, such as Ctrl-C, cannot break.

Such an exception comes between any two steps of the main thread's Python code. `threading.Condition` and
`threading.Event` are written in Python and hold a lock that other threads need: at the wrong step it stays locked.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

_LOOK_AGAIN_S = 1.0  # a child process has not the thread that would wake its threads


class Waiters:
    """Threads that wait, each for a lock that no other thread takes. Those who wake them hold no lock."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: deque[threading.Lock] = deque()

    def wait(self, is_over: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Return True when woken, or at once if `is_over` returns true; False after the time-out."""
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        try:
            # `is_over` after the append: the thread that makes it true wakes this one from then on.
            return bool(is_over()) or lock.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s))
        finally:
            if lock in self._locks:  # looked at first: an error that is handled here would be the context of Ctrl-C
                with suppress(ValueError):  # it is being woken
                    self._locks.remove(lock)

    def wait_until(self, is_true: Callable[[], bool], timeout_s: float | None) -> bool:
        """Return True as soon as `is_true()`, or False after the time-out. What makes it true calls `wake_all`."""
        ends_s = math.inf if timeout_s is None else monotonic() + timeout_s
        while not is_true():
            left_s = ends_s - monotonic()
            if left_s <= 0:
                return False
            self.wait(is_true, min(left_s, _LOOK_AGAIN_S))
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

    def __init__(self) -> None:
        self._waiters = Waiters()
        self.is_set = False

    def set(self) -> None:
        self.is_set = True
        self._waiters.wake_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return True once it has happened, False after the time-out."""
        self._waiters.wait(lambda: self.is_set, timeout_s)
        return self.is_set
