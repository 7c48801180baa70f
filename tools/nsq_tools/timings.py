"""Status lines about the duration of the latest messages, with the text of Go's tools."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsqd_py.runtime.logs import Log

# With fewer values, the percentiles are inaccurate.
FEW = 100


class Timings:
    """Log a line after every `every` messages; 0 disables it.

    [aggregate]: finished 250 - 99th: 1.91ms - 95th: 1.22ms - avg: 0.84ms
    """

    __slots__ = ("_every", "_log", "_name", "_took_s")

    def __init__(self, name: str, every: int, log: Log) -> None:
        self._name = name
        self._every = every
        self._log = log
        self._took_s: list[float] = []

    def add(self, took_s: float, count: int = 1) -> None:
        """Record that `count` messages took `took_s` each."""
        every = self._every
        if every <= 0:
            return
        self._took_s += [took_s] * count
        while len(self._took_s) >= every:
            self._log.info("%s", status_line(self._name, self._took_s[:every]))
            del self._took_s[:every]


class TimingsByHost:
    """A status line for all messages and, if there are several hosts, one for each host."""

    def __init__(self, hosts: Sequence[str], every: int, log: Log) -> None:
        if 0 < every < FEW:
            log.warning("use more than %d status values for accurate percentiles (configured with %d)", FEW, every)
        self._all = Timings("[aggregate]", every, log)
        self._by_host = {host: Timings(f"[{host}]", every, log) for host in hosts} if len(set(hosts)) > 1 else {}

    def add(self, host: str, took_s: float, count: int = 1) -> None:
        """Record that `host` took `count` messages."""
        self.add_to_one(host, took_s, count)
        self._all.add(took_s, count)

    def add_to_one(self, host: str, took_s: float, count: int = 1) -> None:
        """Record that `host` took `count` messages that are also sent to other hosts."""
        if host in self._by_host:
            self._by_host[host].add(took_s, count)

    def add_to_all(self, took_s: float) -> None:
        """Record that all hosts took one message."""
        self._all.add(took_s)


def status_line(name: str, took_s: Sequence[float]) -> str:
    """Return the status line for these durations. At least one is required."""
    ordered = sorted(took_s)
    average_ms = 1000 * sum(ordered) / len(ordered)
    return (
        f"{name}: finished {len(ordered)} - 99th: {1000 * percentile(99, ordered):.2f}ms"
        f" - 95th: {1000 * percentile(95, ordered):.2f}ms - avg: {average_ms:.2f}ms"
    )


def percentile(percent: float, ordered: Sequence[float]) -> float:
    """Return the value at the index that Go's tools use: half an index above the exact one, rounded up."""
    place = math.ceil(percent / 100 * len(ordered) + 0.5)
    return ordered[min(place, len(ordered) - 1)]
