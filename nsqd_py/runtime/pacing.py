"""The event loop's time: `LoopLag` measures how late the loop is, `WorkSlices` splits long work into slices, `Turns` spreads
the short work of many; and histograms.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf
from typing import Any

import gevent
from gevent.event import Event

from nsqd_py.pqueues.alarms import Alarms

SLICE_S = 0.001
# Not 0: gevent runs up to 50 callbacks before it polls, and each `sleep(0)` is one. In slices of 2 ms that delayed
# sockets by 100 ms; a pause of a timer delays them by 2.6 ms.
PAUSE_S = 0.001
# For work that a client waits for: one iteration of the loop, in which everything that is ready is served once.
ONE_ROUND_S = 0.00001

# Time for all jobs of `Turns` in one iteration of the loop.
TURNS_S = 0.002

INTERVAL_NS = 250_000_000
_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Histogram:
    """Counts the values up to each of the ascending `bounds`, and those above all of them."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = (*bounds, inf)
        self._counts = [0] * len(self._bounds)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value. Takes 0.3 us."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Return each bound, infinity last, with the number of values up to it."""
        return list(zip(self._bounds, accumulate(self._counts), strict=True))


class WorkSlices:
    """The slices of a greenlet's long work. After each slice the greenlet pauses and the loop serves all others."""

    __slots__ = ("_ends_s", "_pause_s")

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        self._pause_s = pause_s
        self._ends_s = time.perf_counter() + SLICE_S

    def sleep_if_due(self) -> None:
        """Pause if the slice is over. Call this about every 100 us of work."""
        if time.perf_counter() >= self._ends_s:
            gevent.sleep(self._pause_s)
            self._ends_s = time.perf_counter() + SLICE_S


class Turns:
    """Spreads short jobs of many greenlets that become ready at once over iterations of the event loop.

    gevent runs all ready greenlets before it polls sockets again. With `wait` before each job, they run for
    TURNS_S in an iteration, and then one by one, each in its own iteration. Addresses take turns, and so do the
    kinds of jobs of an address: who asks for something else need not wait for a crowd.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._timer = loop.timer(0.0)
        self._waiting: OrderedDict[str, OrderedDict[str, deque[Event]]] = OrderedDict()
        self._iteration = -1
        self._ends_s = 0.0

    def wait(self, address: str, kind: str) -> None:
        """Return when the greenlet may work for about a millisecond. `address` is that of its client."""
        if not self._waiting and self._has_time():
            return
        if not self._waiting:
            self._timer.start(self._next)
        turn = Event()
        self._waiting.setdefault(address, OrderedDict()).setdefault(kind, deque()).append(turn)
        try:
            turn.wait()
        finally:
            if not turn.is_set():  # the greenlet was killed; its turn passes unused
                turn.set()

    def _has_time(self) -> bool:
        now_s = time.perf_counter()
        if self._loop.iteration != self._iteration:
            self._iteration = self._loop.iteration
            self._ends_s = now_s + TURNS_S
        return now_s < self._ends_s

    def _next(self) -> None:
        """Wake one greenlet. A timer of 0 rings in the next iteration, after the loop has polled its sockets."""
        address, kinds = self._waiting.popitem(last=False)
        kind, turns = kinds.popitem(last=False)
        turns.popleft().set()
        if turns:
            kinds[kind] = turns
        if kinds:
            self._waiting[address] = kinds
        if self._waiting:
            self._timer.start(self._next)


class LoopLag:
    """An alarm every 250 ms, which records in `lags_s` how late it rings."""

    def __init__(self, alarms: Alarms, clock: Callable[[], int]) -> None:
        self.lags_s = Histogram(_BOUNDS_S)
        self._clock = clock
        self._alarm = alarms.alarm(self._on_alarm)
        self._due_ns = 0

    def start(self) -> None:
        self._wait(self._clock())

    def stop(self) -> None:
        self._alarm.set(None)

    def _on_alarm(self, now_ns: int) -> None:
        self.lags_s.observe((now_ns - self._due_ns) / 1e9)
        self._wait(now_ns)

    def _wait(self, now_ns: int) -> None:
        self._due_ns = now_ns + INTERVAL_NS
        self._alarm.set(self._due_ns)
