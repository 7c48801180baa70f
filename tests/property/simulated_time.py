"""Processes in simulated time: their clocks, waits, timeouts and pauses, in one thread and without waiting.

A process has greenlets that wait by `Process.sleep`; the simulation continues the one that is due next. In the modules
under test, it takes the place of gevent, and `event` that of `Event`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

_EPOCH_S = 1_600_000_000.0


class Simulation:
    """The time, what is due, and the process that runs now. `check` is called after each step."""

    def __init__(self, check: Callable[[], None]) -> None:
        self.now_s = 0.0
        self.current: Any = None  # a Process
        self._check = check
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.hub = getcurrent()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now_s + seconds, next(self._numbers), call))

    def run(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self._due and self._due[0][0] <= until_s:
            self.now_s, _, call = heapq.heappop(self._due)
            call()
            self._check()
        self.now_s = until_s

    # ---- in place of the module `gevent`, for the process that runs now

    def spawn(self, work: Callable[[], object]) -> _Spawned:
        return self.current.spawn(work)

    def sleep(self, seconds: float) -> None:
        self.current.sleep(seconds)

    def Timeout(self, seconds: float, error: BaseException) -> _Timeout:
        return _Timeout(self.current.clock() + seconds, error)

    def event(self) -> _Event:
        return _Event(self)


class Process:
    """One life of a process. Its steady clock runs at its own `rate`, also while the process is paused."""

    def __init__(self, simulation: Simulation, rate: float) -> None:
        self.simulation = simulation
        self.is_dead = False
        self.paused_until_s = 0.0
        self._rate = rate
        self._greenlets: list[greenlet] = []

    def clock(self) -> float:
        return _EPOCH_S + self.simulation.now_s * self._rate

    @property
    def is_running(self) -> bool:
        return not self.is_dead and self.simulation.now_s > self.paused_until_s

    def spawn(self, work: Callable[[], object]) -> _Spawned:
        spawned = _Spawned(self, work)
        self._greenlets.append(spawned.greenlet)
        _Wakeup(self, spawned.greenlet).after(0.0)
        return spawned

    def sleep(self, seconds: float) -> None:
        self.park(_Wakeup(self, getcurrent()).after(seconds / self._rate))

    def park(self, wakeup: _Wakeup) -> None:
        """Wait until something fires the wakeup, or a timeout of this greenlet ends."""
        for timeout in getattr(getcurrent(), "timeouts", ()):
            wakeup.after(max(0.0, (timeout.ends_s - self.clock()) / self._rate), timeout.error)
        error = self.simulation.hub.switch()
        if error is not None:
            raise error

    def kill(self) -> None:
        self.is_dead = True
        for each in self._greenlets:
            if not each.dead and each is not getcurrent():
                each.parent = getcurrent()
                each.throw(GreenletExit)


class _Wakeup:
    """Continues a greenlet once, not before its process does."""

    def __init__(self, process: Process, waiting: greenlet) -> None:
        self.process = process
        self.is_done = False
        self._waiting = waiting

    def after(self, seconds: float, error: BaseException | None = None) -> _Wakeup:
        self.process.simulation.after(seconds, lambda: self.fire(error))
        return self

    def fire(self, error: BaseException | None = None) -> None:
        process, simulation = self.process, self.process.simulation
        if self.is_done or process.is_dead:
            return
        if process.paused_until_s > simulation.now_s:
            self.after(process.paused_until_s - simulation.now_s, error)
            return
        self.is_done = True
        simulation.current = process
        self._waiting.switch(error)


class _Spawned:
    def __init__(self, process: Process, work: Callable[[], object]) -> None:
        self.greenlet = greenlet(lambda _error: self._run(work), parent=process.simulation.hub)
        self.exception = None
        self._process = process
        self._links: list[Callable[[_Spawned], object]] = []

    def _run(self, work: Callable[[], object]) -> None:
        work()
        for link in self._links:
            link(self)

    def link(self, call: Callable[[_Spawned], object]) -> None:
        self._links.append(call)

    def join(self) -> None:
        while not self.greenlet.dead and not self._process.is_dead:
            self._process.sleep(0.01)


class _Timeout:
    def __init__(self, ends_s: float, error: BaseException) -> None:
        self.ends_s = ends_s
        self.error = error

    def __enter__(self) -> None:
        here = getcurrent()
        here.timeouts = [*getattr(here, "timeouts", ()), self]

    def __exit__(self, *_: object) -> None:
        here = getcurrent()
        here.timeouts.remove(self)


class _Event:
    """In place of `gevent.event.Event`."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._is_set = False
        self._waiting: list[_Wakeup] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for wakeup in self._waiting:
            wakeup.after(0.0)
        self._waiting.clear()

    def wait(self, timeout_s: float | None = None) -> bool:
        process = self._simulation.current
        if not self._is_set:
            wakeup = _Wakeup(process, getcurrent())
            self._waiting.append(wakeup)
            if timeout_s is not None:
                wakeup.after(timeout_s / process._rate)
            process.park(wakeup)
        return self._is_set
