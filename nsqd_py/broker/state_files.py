"""`nsqd.clock` and `nsqd.stop`: the steady clock, and the record of a clean stop.

Due times and message ids are on the steady clock, and outlive the process. `nsqd.clock` says what it showed, so that it
continues after a restart even if the wall clock was set. While the machine stays up, its boot clock measures the time
since the file was written. After a reboot the wall clock must do that.

`nsqd.stop` says where each log ended. After a kill or a power cut the end of a log may be torn, and that is no damage.
After a clean stop nothing may be missing: whatever is, was removed or damaged since. The file is written as the last
step of a clean stop, and the next start removes it before anything is written to a log.

The first line of each file is the crc32c of the rest, which is JSON. A damaged file is ignored; one with a right
checksum that nsqd cannot have written ends the start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import gevent
from google_crc32c import extend

from nsqd_py.broker.metadata import replace_file
from nsqd_py.clock import SteadyClock
from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.ranges import EPOCHS_FILE, SavedEpochs, decode_epochs_of_logs
from nsqd_py.errors import StartError
from nsqd_py.guid import END_OF_IDS_NS, FIRST_ID_NS
from nsqd_py.pqueues import Alarms
from nsqd_py.runtime.documents import BAD_CONTENT, checked_number, decode_fields, describe
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.private_files import read_bytes
from nsqd_py.runtime.threads import in_thread

STOP_FILE = "nsqd.stop"
STANDBY_FILE = "nsqd.standby"  # see `nsqd_py.standby.state`
MEMBER_FILE = "nsqd.member"  # likewise
BACKUP_FILE = "nsqd.backup"  # see `nsqd_py.standby.backup`

T = TypeVar("T")


def write_checked(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object with its checksum durably. Raises OSError."""
    content = json.dumps(value).encode()
    replace_file(path, b"%08x\n%b" % (extend(0, content), content))


def read_checked(path: Path, decode: Callable[[Any], T]) -> T | None:
    """Return what `decode` makes of the JSON in such a file; None if there is no valid file.

    Raises OSError, and StartError if the checksum is right but the content is not what nsqd writes.
    """
    try:
        checksum, _, content = read_bytes(path).partition(b"\n")
    except FileNotFoundError:
        return None
    if checksum != b"%08x" % extend(0, content):
        return None
    try:
        return decode(json.loads(content))
    except BAD_CONTENT as error:
        raise StartError(
            f"the content of {path.absolute()} is not what nsqd writes, although its checksum is right: "
            f"{describe(error)}; move the file out of the data path to start without it"
        ) from error


class LogEnd(NamedTuple):
    """The end of a topic's log.

    next_seq    the number of its next message
    file_seqs   the first number of each of its files, in order
    end_offset  the end of the last record in the last file
    """

    next_seq: int
    file_seqs: Sequence[int]
    end_offset: int


def end_of(log: TopicLog) -> LogEnd:
    """Return the current end of a log."""
    files = log.files
    return LogEnd(log.next_seq, [file.first_seq for file in files], files[-1].end_offset if files else 0)


def write_clean_stop(directory: Path, ends: Mapping[str, LogEnd]) -> None:
    """Write the ends of these topics' logs durably. Raises OSError."""
    write_checked(directory / STOP_FILE, {"logs": {topic: tuple(end) for topic, end in ends.items()}})


def read_clean_stop(directory: Path) -> dict[str, LogEnd]:
    """Return the ends of the logs by topic; empty if nsqd did not stop cleanly. Raises OSError."""
    return read_checked(directory / STOP_FILE, _decode_ends) or {}


def _decode_ends(record: dict[str, Any]) -> dict[str, LogEnd]:
    return {
        topic: LogEnd(checked_number(next_seq), [*map(checked_number, file_seqs)], checked_number(end_offset))
        for topic, (next_seq, file_seqs, end_offset) in record["logs"].items()
    }


def forget_clean_stop(directory: Path) -> None:
    """Remove the record durably, before the logs change. Raises OSError."""
    path = directory / STOP_FILE
    if path.exists():
        path.unlink()
        sync_directory(directory)


def read_epochs(directory: Path) -> SavedEpochs | None:
    """Return the content of `nsqd.epochs`; None if there is no valid file. Raises OSError."""
    return read_checked(directory / EPOCHS_FILE, decode_epochs_of_logs)


CLOCK_FILE = "nsqd.clock"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
        return min(self.steady_ns + passed_ns, max(self.steady_ns, now.wall_ns))

    def is_same_boot(self, now: ClockReading) -> bool:
        """True if both readings are of the same boot of the machine."""
        return bool(self.boot_id) and self.boot_id == now.boot_id


def read_clocks(steady_ns: int, wall_clock: Callable[[], int] = time.time_ns) -> ClockReading:
    """Return the current time of all clocks."""
    try:
        boot_id = _BOOT_ID.read_text().strip()
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):  # not Linux
        boot_id, boot_ns = "", 0
    return ClockReading(boot_id, boot_ns, wall_clock(), steady_ns)


def read_clock_file(directory: Path) -> ClockReading | None:
    """Return what the last nsqd wrote; None if there is no valid file. Raises OSError."""
    reading = read_checked(directory / CLOCK_FILE, _decode_reading)
    # Before the first id, the machine's clock was not set yet.
    return reading if reading is not None and reading.steady_ns > FIRST_ID_NS else None


def _decode_reading(fields: dict[str, Any]) -> ClockReading:
    reading = decode_fields(ClockReading, fields)
    if reading.steady_ns >= END_OF_IDS_NS:
        raise ValueError(f"steady_ns is {reading.steady_ns}, after the last message id")
    return reading


def write_clock_file(directory: Path, reading: ClockReading) -> None:
    """Write the file durably. Raises OSError."""
    write_checked(directory / CLOCK_FILE, asdict(reading))


_LOOK_EVERY_NS = 1_000_000_000
_STEP_NS = 1_000_000_000  # smaller differences are no step: the system corrects them gradually


class ClockKeeper:
    """Sets the steady clock at the start; writes `nsqd.clock` then, when the wall clock is set, and at the end."""

    def __init__(
        self, directory: Path, clock: SteadyClock, wall_clock: Callable[[], int], alarms: Alarms, threadpool: Any, log: Log
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._wall_clock = wall_clock
        self._threadpool = threadpool
        self._log = log
        self._written: ClockReading | None = None
        self._alarm = alarms.alarm(self._look)

    def restore(self) -> bool:
        """Continue the steady clock of the last nsqd on this data path. Raises OSError.

        Return True if the machine has not been rebooted since: then nothing that nsqd wrote was lost.
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
        """Write the file a last time. Failures are logged."""
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
        except OSError as error:  # the next start uses the wall clock
            self._log.error("NSQ: failed to write down the time - %s", error)
