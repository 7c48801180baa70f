"""The record of a clean stop: where each log ended. A start that finds it knows what must be there.

After a kill or a power cut the end of a log may be torn, and that is no damage. After a clean stop nothing may be
missing: whatever is, was removed or damaged since. The record is a file `nsqd.stop`, made as the last thing of a clean
stop and removed by the next start before anything is written to a log. Its first line is the crc32c of the rest, which
is JSON; one that is damaged counts as none.


----
`nsqd.clock`: what the steady clock showed, so that it goes on after a restart although the wall clock was set.

Due times and message ids are on the steady clock, and outlive the process. While the machine is up, its own clock says
how much time has passed since the file was written. After a reboot the wall clock has to say it.


----
The steady clock over restarts, and over steps of the wall clock: see `nsqd_py.broker.state_files`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gevent
from google_crc32c import extend

from nsqd_py.broker.metadata import replace_file
from nsqd_py.clock import SteadyClock
from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.guid import FIRST_ID_NS
from nsqd_py.pqueues import Alarms
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.threads import in_thread

STOP_FILE = "nsqd.stop"


class LogEnd(NamedTuple):
    """Where the log of a topic ended.

    next_seq    the number of its next message
    file_seqs   the first number of each of its files, in order
    end_offset  where the last record of the last file ended
    """

    next_seq: int
    file_seqs: Sequence[int]
    end_offset: int


def end_of(log: TopicLog) -> LogEnd:
    """Return where a log ends now."""
    files = log.files
    return LogEnd(log.next_seq, [file.first_seq for file in files], files[-1].end_offset if files else 0)


def write_clean_stop(directory: Path, ends: Mapping[str, LogEnd]) -> None:
    """Record where the logs of these topics ended, durably. Raises OSError."""
    content = json.dumps({"logs": {topic: tuple(end) for topic, end in ends.items()}}).encode()
    replace_file(directory / STOP_FILE, b"%08x\n%b" % (extend(0, content), content))


def read_clean_stop(directory: Path) -> dict[str, LogEnd]:
    """Return the ends of the logs by topic; empty when nsqd did not stop cleanly. Raises OSError."""
    try:
        checksum, _, content = (directory / STOP_FILE).read_bytes().partition(b"\n")
    except FileNotFoundError:
        return {}
    if checksum != b"%08x" % extend(0, content):
        return {}
    return {topic: LogEnd(*end) for topic, end in json.loads(content)["logs"].items()}


def forget_clean_stop(directory: Path) -> None:
    """Remove the record, durably: from now on the logs change. Raises OSError."""
    path = directory / STOP_FILE
    if path.exists():
        path.unlink()
        sync_directory(directory)


CLOCK_FILE = "nsqd.clock"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """All clocks at one moment, in ns.

    boot_id    names the run of the machine; empty where that is not known
    boot_ns    since the machine began to run, also while it slept
    wall_ns    since the Unix epoch, by the wall clock
    steady_ns  since the Unix epoch, by nsqd's steady clock
    """

    boot_id: str
    boot_ns: int
    wall_ns: int
    steady_ns: int

    def steady_at(self, now: ClockReading) -> int:
        """Return what the steady clock has to show at `now`, the `steady_ns` of which does not count.

        Where it is not known how much of a step of the wall clock is time that has passed, it is the least: no message
        is older than it may be for a clock that was set.
        """
        if self.is_same_boot(now) and now.boot_ns >= self.boot_ns:
            return self.steady_ns + now.boot_ns - self.boot_ns
        passed_ns = max(0, now.wall_ns - self.wall_ns)
        return min(self.steady_ns + passed_ns, max(self.steady_ns, now.wall_ns))

    def is_same_boot(self, now: ClockReading) -> bool:
        """True when the machine has been running all the time between the two."""
        return bool(self.boot_id) and self.boot_id == now.boot_id


def read_clocks(steady_ns: int, wall_clock: Callable[[], int] = time.time_ns) -> ClockReading:
    """Return what all clocks show now."""
    try:
        boot_id = _BOOT_ID.read_text().strip()
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):  # another system than Linux
        boot_id, boot_ns = "", 0
    return ClockReading(boot_id, boot_ns, wall_clock(), steady_ns)


def read_clock_file(directory: Path) -> ClockReading | None:
    """Return what the last nsqd wrote; None where there is nothing, or nothing of use. Raises OSError."""
    try:
        checksum, _, content = (directory / CLOCK_FILE).read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if checksum != b"%08x" % extend(0, content):
        return None
    reading = ClockReading(**json.loads(content))
    return reading if reading.steady_ns > FIRST_ID_NS else None  # the machine's clock was not set yet


def write_clock_file(directory: Path, reading: ClockReading) -> None:
    """Write it durably. Raises OSError."""
    content = json.dumps(asdict(reading)).encode()
    replace_file(directory / CLOCK_FILE, b"%08x\n%b" % (extend(0, content), content))


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
