"""Work beside a thread that must not wait: calls in threads of their own, and a way to wake a thread from `poll`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


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
