"""What arrived faster than it may be acted on: it is done in slices, so that other clients do not wait for it.

A nsqd that acts on a million commands of one client, or a nsqlookupd at which hundreds of nsqd register thousands of
channels at the same moment, goes on serving everybody else.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, Protocol

# Of each turn of the event loop, for all workers together.
SLICE_S = 0.002
# For what one read brought: as long as nobody is behind, and while somebody is.
_QUIET_S = 0.002
_BUSY_S = 0.0002


class Worker(Protocol):
    """A connection with something left to do."""

    def work(self) -> bool:
        """Do some of it, for about 0.2 ms; True when there is more to be done now. Raises nothing."""


class Backlog:
    """Connections with something left to do, in turn, for 2 ms of each turn of the event loop.

    slice_s  how long a connection may act at once on what it reads
    """

    __slots__ = ("_is_coming", "_timer", "_workers", "slice_s")

    def __init__(self, loop: Any) -> None:
        self.slice_s = _QUIET_S
        self._workers: OrderedDict[Worker, None] = OrderedDict()
        self._timer = loop.timer(0.0)
        self._is_coming = False

    def add(self, worker: Worker) -> None:
        """Let it go on when it is its turn."""
        self._workers[worker] = None
        self.slice_s = _BUSY_S
        if not self._is_coming:
            self._is_coming = True
            self._timer.start(self._work)

    def _work(self) -> None:
        self._timer.stop()
        workers = self._workers
        until_s = time.perf_counter() + SLICE_S
        while workers and time.perf_counter() < until_s:
            worker, _ = workers.popitem(last=False)
            if worker.work():
                workers[worker] = None
        if workers:
            self._timer.start(self._work)
        else:
            self._is_coming = False
            self.slice_s = _QUIET_S
