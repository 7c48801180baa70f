"""`nsqd.clock`: what the steady clock showed, so that it continues after a restart even if the wall clock was set.

Due times and message ids are on the steady clock, and outlive the process. While the machine stays up, its boot clock
measures the time since the file was written. After a reboot the wall clock must do that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gevent

from nsqd_py.broker.services import BrokerServices
from nsqd_py.broker.state_files import CLOCK_FILE, read_checked, write_checked
from nsqd_py.clock import SteadyClock
from nsqd_py.protocol.message_ids import END_OF_IDS_NS, FIRST_ID_NS
from nsqd_py.runtime.documents import decode_fields
from nsqd_py.runtime.threads import in_thread

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# The wall clock is compared with the steady clock each second.
_CHECK_EVERY_NS = 1_000_000_000
_STEP_NS = 1_000_000_000  # smaller differences are no step: the system corrects them gradually


@dataclass(frozen=True, slots=True)
class ClockReading:
    """All clocks at one moment, in ns.

    boot_id    identifies the current boot of the machine; empty if unknown
    boot_ns    time since the boot, including sleep
    wall_ns    time since the Unix epoch on the wall clock
    steady_ns  time since the Unix epoch on nsqd's steady clock
    """

    boot_id: str
    boot_ns: int
    wall_ns: int
    steady_ns: int

    def steady_at(self, now: ClockReading) -> int:
        """Return what the steady clock must show at `now`; the `steady_ns` of `now` is ignored.

        If it is unknown how much of a step of the wall clock is real time, the least possible time is assumed, so that
        setting a clock makes no message too old.
        """
        if self.is_same_boot(now) and now.boot_ns >= self.boot_ns:
            return self.steady_ns + now.boot_ns - self.boot_ns
        passed_ns = max(0, now.wall_ns - self.wall_ns)
        latest_ns = max(self.steady_ns, now.wall_ns)
        return min(self.steady_ns + passed_ns, latest_ns)

    def is_same_boot(self, now: ClockReading) -> bool:
        """True if both readings are of the same boot of the machine."""
        return bool(self.boot_id) and self.boot_id == now.boot_id


def read_clocks(steady_ns: int, wall_clock: Callable[[], int] = time.time_ns) -> ClockReading:
    """Return the current time of all clocks."""
    try:
        boot_id = _BOOT_ID.read_text().strip()
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):  # not Linux
        boot_id = ""
        boot_ns = 0
    return ClockReading(boot_id, boot_ns, wall_clock(), steady_ns)


def read_clock_file(directory: Path) -> ClockReading | None:
    """Return what the last nsqd wrote; None if there is no valid file. Raises OSError."""
    reading = read_checked(directory / CLOCK_FILE, _decode_reading)
    # Before the first id, the machine's clock was not set yet.
    if reading is not None and reading.steady_ns > FIRST_ID_NS:
        return reading
    return None


def _decode_reading(fields: dict[str, Any]) -> ClockReading:
    reading = decode_fields(ClockReading, fields)
    if reading.steady_ns >= END_OF_IDS_NS:
        raise ValueError(f"steady_ns is {reading.steady_ns}, after the last message id")
    return reading


class ClockKeeper:
    """Sets the steady clock at the start; writes `nsqd.clock` then, when the wall clock is set, and at the end."""

    def __init__(self, services: BrokerServices, clock: SteadyClock) -> None:
        self._services = services
        self._clock = clock
        self._restored: ClockReading | None = None
        self._written: ClockReading | None = None
        self._writing: Any = None  # the greenlet that waits for a thread
        self._alarm = services.alarms.alarm(self._check)

    def restore(self) -> bool:
        """Continue the steady clock of the last nsqd on this data path. Raises OSError.

        Call it again when the data path may have got the file of another nsqd, whose messages are restored.

        Return True if the machine has not been rebooted since: then nothing that nsqd wrote was lost.
        """
        before = read_clock_file(self._services.directory)
        now = self._read()
        if before is None:
            return False
        if before != self._restored:
            self._clock.go_on_at(before.steady_at(now))
            self._restored = before
        return before.is_same_boot(now)

    def start(self) -> None:
        """Write the file, and again after each step of the wall clock."""
        self._write(self._read())
        self._alarm.set(self._clock() + _CHECK_EVERY_NS)

    def close(self) -> None:
        """Write the file a last time. Failures are logged. Blocks this greenlet while a thread writes it."""
        self._alarm.set(None)
        if self._writing is not None:
            self._writing.join()  # it writes an earlier time, to the same file
        self._write(self._read())

    def _read(self) -> ClockReading:
        return read_clocks(self._clock(), self._services.wall_clock)

    def _check(self, now_ns: int) -> None:
        self._alarm.set(now_ns + _CHECK_EVERY_NS)
        before = self._written
        step_ns = 0
        if before is not None:
            step_ns = self._services.wall_clock() - now_ns - (before.wall_ns - before.steady_ns)
        if self._services.data_path.problem:
            return
        if abs(step_ns) >= _STEP_NS and (self._writing is None or self._writing.ready()):
            self._services.log.warning("NSQ: the clock was set by %.1f s", step_ns / 1e9)
            self._written = self._read()
            self._writing = gevent.spawn(in_thread, self._services.threadpool, self._replace, self._written)

    def _write(self, reading: ClockReading) -> None:
        self._written = reading
        self._replace(reading)

    def _replace(self, reading: ClockReading) -> None:
        """Write the file; may run in a thread."""
        try:
            write_checked(self._services.directory / CLOCK_FILE, asdict(reading))
        except OSError as error:  # the next start uses the wall clock
            self._services.log.error("NSQ: failed to write down the time - %s", error)
