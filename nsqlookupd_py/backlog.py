"""Commands that arrived faster than they may be done: those who ask over HTTP are not to wait for them.

When nsqlookupd starts anew, hundreds of nsqd register thousands of channels at the same moment.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Protocol

SLICE_S = 0.002
COMMANDS_AT_ONCE = 4


class Worker(Protocol):
    """A connection with commands to do."""

    def work(self, most: int) -> bool:
        """Do at most so many commands; True when there are more."""


class Backlog:
    """Connections in turn, each a few commands, for 2 ms of each turn of the event loop."""

    def __init__(self, loop: Any) -> None:
        self._workers: deque[Worker] = deque()
        self._timer = loop.timer(0.0)
        self._is_coming = False

    def add(self, worker: Worker) -> None:
        """It goes on when it is its turn."""
        self._workers.append(worker)
        if not self._is_coming:
            self._is_coming = True
            self._timer.start(self._work)

    def _work(self) -> None:
        self._timer.stop()
        workers = self._workers
        until_s = time.perf_counter() + SLICE_S
        while workers and time.perf_counter() < until_s:
            worker = workers.popleft()
            if worker.work(COMMANDS_AT_ONCE):
                workers.append(worker)
        self._is_coming = bool(workers)
        if workers:
            self._timer.start(self._work)
