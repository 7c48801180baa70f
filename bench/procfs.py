"""CPU time and memory of a process and its children, from /proc (proc(5))."""

import os
from contextlib import suppress
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_IDLE, _IOWAIT = 3, 4  # Fields of the first line of /proc/stat.
_ENDED = (FileNotFoundError, ProcessLookupError)  # A process may end while it is looked at.
# Fields 14 and 15 of /proc/pid/stat, counted from the first after the name.
_UTIME, _STIME = 11, 12


def family(pid: int) -> list[int]:
    """`pid` and its descendants: the command under test may be a script that starts the server."""
    members = [pid]
    for member in members:
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            with suppress(*_ENDED):
                members.extend(int(child) for child in children.read_text().split())
    return members


def cpu_s(pid: int) -> float:
    """User and system seconds used so far."""
    return sum(_cpu_ticks(member) for member in family(pid)) / _TICKS_PER_SECOND


def loop_cpu_s(pid: int) -> float:
    """User and system seconds that the main threads have used so far: those of the event loops."""
    return sum(_cpu_ticks(f"{member}/task/{member}") for member in family(pid)) / _TICKS_PER_SECOND


def own_cpu_s(pid: int) -> float:
    """User and system seconds used so far, without those of descendants."""
    return _cpu_ticks(pid) / _TICKS_PER_SECOND


def busy_s() -> float:
    """Seconds that all cores together have been busy since the machine started, or taken away by its host."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    return (sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT]) / _TICKS_PER_SECOND


def rss_bytes(pid: int) -> int:
    """Resident memory now."""
    return sum(map(own_rss_bytes, family(pid)))


def own_rss_bytes(pid: int) -> int:
    """Resident memory now, without that of descendants."""
    return _kilobytes(f"/proc/{pid}/status", "VmRSS:") * 1024


def _cpu_ticks(pid: int | str) -> int:
    """Return the ticks of a process, or of a thread as `pid/task/number`; 0 if it has ended."""
    with suppress(*_ENDED):
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(after_name[_UTIME]) + int(after_name[_STIME])
    return 0


def _kilobytes(path: str, name: str) -> int:
    """0 of a process that has ended, waited for or not."""
    with suppress(*_ENDED):
        for line in Path(path).read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0
