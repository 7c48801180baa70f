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
# Those that cause very many errors have this part of the time together, beside all others.
SLOW_PART = 0.05
_SLOW_SLICE_S = 0.0005
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

    __slots__ = ("_is_coming", "_loop", "_slow", "_slow_timer", "_timer", "_workers", "slice_s")

    def __init__(self, loop: Any) -> None:
        self.slice_s = _QUIET_S
        self._workers: OrderedDict[Worker, None] = OrderedDict()
        self._slow: OrderedDict[Worker, None] = OrderedDict()
        self._loop = loop
        self._timer = loop.timer(0.0)
        self._slow_timer: Any = None
        self._is_coming = False

    def add_slow(self, worker: Worker) -> None:
        """Let it go on when it is its turn among those that have SLOW_PART of the time together."""
        self._workers.pop(worker, None)
        self._slow[worker] = None
        if self._slow_timer is None:
            self._rest_of_slow(_SLOW_SLICE_S)

    def add(self, worker: Worker) -> None:
        """Let it go on when it is its turn."""
        self._slow.pop(worker, None)
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
            if worker.work() and worker not in self._slow:
                workers[worker] = None
        if workers:
            self._timer.start(self._work)
        else:
            self._is_coming = False
            self.slice_s = _QUIET_S

    def _rest_of_slow(self, worked_s: float) -> None:
        self._slow_timer = self._loop.timer(worked_s * (1 / SLOW_PART - 1))
        self._slow_timer.start(self._work_slowly)

    def _work_slowly(self) -> None:
        self._slow_timer.close()
        self._slow_timer = None
        slow = self._slow
        began_s = now_s = time.perf_counter()
        while slow and now_s - began_s < _SLOW_SLICE_S:
            worker, _ = slow.popitem(last=False)
            if worker.work() and worker not in self._workers:
                slow[worker] = None
            now_s = time.perf_counter()
        if slow and self._slow_timer is None:
            self._rest_of_slow(now_s - began_s)
