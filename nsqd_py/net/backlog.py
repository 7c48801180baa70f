"""Input that takes long is handled in slices, so that other clients do not wait for it.

Examples: one client sends a million commands to nsqd; hundreds of nsqds register thousands of channels with nsqlookupd
at the same moment.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any, Protocol

# Time for all workers together in one iteration of the event loop.
SLICE_S = 0.002
# Part of the time that all slow workers share: connections that cause very many errors.
SLOW_PART = 0.05
_SLOW_SLICE_S = 0.0005
# Time for the input of one read: while the backlog is empty, and while it is not.
_QUIET_S = 0.002
_BUSY_S = 0.0002


class Worker(Protocol):
    """A connection with input that is not handled yet."""

    def work(self) -> bool:
        """Handle some input, for about 0.2 ms; return True if more can be handled now. Raises nothing."""


class Backlog:
    """Connections with unhandled input. They take turns, for 2 ms of each event-loop iteration.

    slice_s  time that a connection may spend at once on the input of one read
    """

    __slots__ = ("_is_scheduled", "_loop", "_slow", "_slow_timer", "_timer", "_workers", "slice_s")

    def __init__(self, loop: Any) -> None:
        self.slice_s = _QUIET_S
        self._workers: OrderedDict[Worker, None] = OrderedDict()
        self._slow: OrderedDict[Worker, None] = OrderedDict()
        self._loop = loop
        self._timer = loop.timer(0.0)
        self._slow_timer: Any = None
        self._is_scheduled = False

    def add_slow(self, worker: Worker) -> None:
        """Add a worker to the slow ones, which share SLOW_PART of the time."""
        self._workers.pop(worker, None)
        self._slow[worker] = None
        if self._slow_timer is None:
            self._rest_of_slow(_SLOW_SLICE_S)

    def add(self, worker: Worker) -> None:
        """Add a worker; its `work` is called when its turn comes."""
        self._slow.pop(worker, None)
        self._workers[worker] = None
        self.slice_s = _BUSY_S
        if not self._is_scheduled:
            self._is_scheduled = True
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
            self._is_scheduled = False
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
