"""Samples of what processes use: memory, descriptors, threads, loop lag and disk."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.cluster import Cluster, SoakNsqd
from tests.soak.slopes import Bound
from tests.soak.topics import HISTORY_SUFFIX
from tests.support.background import Background

MB = 1_000_000
CLIENTS = "clients"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BLOCK_BYTES = 512  # of st_blocks, stat(2)
_LAG = re.compile(r"^nsqd_event_loop_lag_seconds_(sum|count) (\S+)$", re.MULTILINE)
_ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class Figure:
    """What is sampled: its title with the unit, and how much it may grow."""

    title: str
    bound: Bound


FIGURES: Mapping[str, Figure] = {
    "rss_mb": Figure("resident memory, MB", Bound(0.10, 5.0)),
    "descriptors": Figure("open descriptors", Bound(0.10, 10.0)),
    "threads": Figure("threads", Bound(0.0, 4.0)),
    "lag_ms": Figure("delay of the event loop, ms", Bound(0.0, 50.0)),
    "disk_mb": Figure("data directory, MB", Bound(0.20, 10.0)),
}


@dataclass
class Series:
    """Samples of each process by figure; None where it was not running or not asked."""

    interval_s: float
    of: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)

    def add(self, process: str, statistics: Mapping[str, float | None]) -> None:
        series = self.of.setdefault(process, {})
        for name, value in statistics.items():
            series.setdefault(name, []).append(value)


class Sampler(Background):
    """Samples all processes of a cluster, and this one, in a thread of its own."""

    def __init__(self, cluster: Cluster, interval_s: float) -> None:
        super().__init__(self._run)
        self.series = Series(interval_s)
        self._cluster = cluster
        self._lags: dict[str, tuple[float, float]] = {}

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self.is_over.wait(max(0.0, due_s - time.monotonic())):
            self._sample()
            due_s += self.series.interval_s

    def _sample(self) -> None:
        self.series.add(CLIENTS, _of_process(os.getpid()))
        for number, lookupd in enumerate(self._cluster.lookupds):
            self.series.add(f"nsqlookupd{number}", _of_process(lookupd.pid))
        for nsqd in self._cluster.nsqds:
            name = nsqd.data_path.name
            statistics = _of_process(nsqd.pid)
            self.series.add(
                name, statistics | {"lag_ms": self._lag_ms(nsqd), "disk_mb": _disk_bytes(nsqd.data_path) / MB}
            )

    def _lag_ms(self, nsqd: SoakNsqd) -> float | None:
        """Return the mean delay of the event loop since the last sample."""
        name = nsqd.data_path.name
        total = _lag_histogram(nsqd)
        before, self._lags[name] = self._lags.get(name, (0.0, 0.0)), total
        sum_s, count = total[0] - before[0], total[1] - before[1]
        return sum_s / count * 1000 if count > 0 and sum_s >= 0 else None


def _of_process(pid: int) -> dict[str, float | None]:
    """Return the statistics of a process; None for each if it has ended."""
    process = Path(f"/proc/{pid}")
    try:
        pages = int((process / "statm").read_text().split()[1])
        descriptors, threads = _descriptors(process / "fd"), len(os.listdir(process / "task"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # the last one: it is a zombie
        return dict.fromkeys(("rss_mb", "descriptors", "threads"))
    return {"rss_mb": pages * _PAGE_BYTES / MB, "descriptors": float(descriptors), "threads": float(threads)}


def _descriptors(directory: Path) -> int:
    """Count descriptors, without those of histories: the soak keeps one more open for each 20,000 messages."""
    count = 0
    for name in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):
            count += not os.readlink(directory / name).endswith(HISTORY_SUFFIX)
    return count


def _lag_histogram(nsqd: SoakNsqd) -> tuple[float, float]:
    """Return the sum in seconds and the count of all delays so far; zeros if it does not answer."""
    connection = http.client.HTTPConnection(nsqd.host.address, nsqd.http_port, timeout=_ASK_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/metrics")
        found = dict(_LAG.findall(connection.getresponse().read().decode()))
        return float(found["sum"]), float(found["count"])
    return 0.0, 0.0


def _disk_bytes(directory: Path) -> int:
    """Return the space that the files of a data directory take."""
    total = 0
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_blocks * _BLOCK_BYTES
    return total
