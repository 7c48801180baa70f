"""Calls that may take long, beside the thread that publishes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """Calls `call` in a thread of its own, and then sets `done`, which others may share."""

    def __init__(self, call: Callable[[], T], done: threading.Event) -> None:
        self._call = call
        self._done = done
        self._result: T | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="nsqd-py", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> T:
        """What it gave, or raised. Waits for it."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._call()
        except Exception as error:  # noqa: BLE001 - `result` raises it
            self._error = error
        finally:
            self._done.set()
