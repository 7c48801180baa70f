"""The steady clock over restarts, and over steps of the wall clock: see `nsqd_py.broker.clock_file`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent

from nsqd_py.broker.clock_file import ClockReading, read_clock_file, read_clocks, write_clock_file
from nsqd_py.clock import SteadyClock
from nsqd_py.pqueues import Alarms
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.threads import in_thread

_LOOK_EVERY_NS = 1_000_000_000
_STEP_NS = 1_000_000_000  # less is no step: the system brings small differences away bit by bit


class ClockKeeper:
    """Sets the steady clock at the start, and writes it down then, when the wall clock is set, and at the end."""

    def __init__(
        self, directory: Path, clock: SteadyClock, wall_clock: Callable[[], int], alarms: Alarms, threadpool: Any,
        log: Log,
    ) -> None:  # fmt: skip
        self._directory = directory
        self._clock = clock
        self._wall_clock = wall_clock
        self._threadpool = threadpool
        self._log = log
        self._written: ClockReading | None = None
        self._alarm = alarms.alarm(self._look)

    def restore(self) -> bool:
        """Let the steady clock go on from where the last nsqd on this data path left it. Raises OSError.

        Returns true when the machine has been running since: whatever that nsqd wrote is there.
        """
        before = read_clock_file(self._directory)
        now = self._read()
        if before is None:
            return False
        self._clock.go_on_at(before.steady_at(now))
        return before.is_same_boot(now)

    def start(self) -> None:
        """Write the file, and again after each step of the wall clock."""
        self._write(self._read())
        self._alarm.set(self._clock() + _LOOK_EVERY_NS)

    def close(self) -> None:
        """Write it a last time. What fails is logged."""
        self._alarm.set(None)
        self._write(self._read())

    def _read(self) -> ClockReading:
        return read_clocks(self._clock(), self._wall_clock)

    def _look(self, now_ns: int) -> None:
        self._alarm.set(now_ns + _LOOK_EVERY_NS)
        before = self._written
        step_ns = self._wall_clock() - now_ns - (before.wall_ns - before.steady_ns) if before is not None else 0
        if abs(step_ns) >= _STEP_NS:
            self._log.warning("NSQ: the clock was set by %.1f s", step_ns / 1e9)
            gevent.spawn(self._write_in_thread)

    def _write_in_thread(self) -> None:
        in_thread(self._threadpool, self._write, self._read())

    def _write(self, reading: ClockReading) -> None:
        self._written = reading
        try:
            write_clock_file(self._directory, reading)
        except OSError as error:  # the next start goes by the wall clock
            self._log.error("NSQ: failed to write down the time - %s", error)
