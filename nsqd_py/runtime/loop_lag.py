"""How late the event loop is: what delays every client when something keeps the loop busy."""

from __future__ import annotations

from collections.abc import Callable

from nsqd_py.pqueues import Alarms
from nsqd_py.runtime.histogram import Histogram

INTERVAL_NS = 250_000_000
_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


def _ignore() -> None:
    pass


class LoopLag:
    """An alarm that wants to ring every 250 ms; `lags_s` says how late it did. It calls `on_tick` each time."""

    def __init__(self, alarms: Alarms, clock: Callable[[], int], on_tick: Callable[[], None] = _ignore) -> None:
        self._on_tick = on_tick
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
        self._on_tick()
        self._wait(now_ns)

    def _wait(self, now_ns: int) -> None:
        self._due_ns = now_ns + INTERVAL_NS
        self._alarm.set(self._due_ns)
