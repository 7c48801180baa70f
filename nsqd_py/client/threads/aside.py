"""Work beside a thread that must not wait: calls in threads of their own, and ways to wake threads."""

from __future__ import annotations

import math
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")
_LOOK_AGAIN_S = 1.0  # how often waiting threads look again, in a child process without the thread that notifies them


class Waker:
    """Wakes the thread that polls it for input. All methods but `wake` belong to that thread."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """Make it readable. Any thread may call this, also after `close`."""
        with suppress(OSError):  # BlockingIOError: it is readable already
            self._writer.send(b"\0")

    def reset(self) -> None:
        """Make it unreadable until the next `wake`."""
        with suppress(BlockingIOError):
            self._reader.recv(4096)  # more than the socket holds

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class Waiters:
    """Threads that wait until another one has changed something.

    Each waits for a lock that it alone takes, so that an exception of a signal handler in one of them leaves nothing
    locked that the others need, as it would in a Condition.
    """

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: deque[threading.Lock] = deque()

    def wait_until(self, is_true: Callable[[], bool], timeout_s: float | None) -> bool:
        """Return True as soon as `is_true()`, or False after the time-out. What changes it must call `notify_all`."""
        ends_s = math.inf if timeout_s is None else monotonic() + timeout_s
        while not is_true():
            left_s = ends_s - monotonic()
            if left_s <= 0:
                return False
            lock = threading.Lock()
            lock.acquire()
            self._locks.append(lock)
            try:
                if not is_true():  # again, since `notify_all` may have been called before `append`
                    lock.acquire(timeout=min(left_s, _LOOK_AGAIN_S))
            finally:
                with suppress(ValueError):  # `notify_all` has removed it
                    self._locks.remove(lock)
        return True

    def notify_all(self) -> None:
        while self._locks:
            with suppress(IndexError):  # it has removed itself
                self._locks.popleft().release()


class Aside(Generic[T]):
    """Runs `call` in a new thread, and wakes `waker` when it has ended."""

    def __init__(self, call: Callable[[], T], waker: Waker) -> None:
        self._call = call
        self._waker = waker
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="nsqd-py", daemon=True)
        self.is_done = False
        self._thread.start()

    def result(self) -> T:
        """Wait for the call, and return or raise its result."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._error = error
        finally:
            self.is_done = True
            self._waker.wake()
