"""`nsqd.clock`: what the steady clock showed, so that it goes on after a restart although the wall clock was set.

Due times and message ids are on the steady clock, and outlive the process. While the machine is up, its own clock says
how much time has passed since the file was written. After a reboot the wall clock has to say it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from google_crc32c import extend

from nsqd_py.broker.metadata import replace_file
from nsqd_py.guid import FIRST_ID_NS

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
