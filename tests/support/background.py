"""Work that goes on next to a test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

DEADLINE_S = 60.0  # of what takes a second on an idle machine


class Background:
    """Calls each of `work` in a thread, from the start of a `with` to its end, which raises the errors of the calls.

    is_over  set at the end: the calls return soon after
    running  the calls
    """

    def __init__(self, *work: Callable[[], None]) -> None:
        self.is_over = threading.Event()
        self.running: list[Future[None]] = []
        self._work = work
        self._pool = ThreadPoolExecutor(len(work))

    def __enter__(self) -> Self:
        self.running = [self._pool.submit(call) for call in self._work]
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self._pool.shutdown(wait=False)
        for call in self.running:
            call.result(DEADLINE_S)
