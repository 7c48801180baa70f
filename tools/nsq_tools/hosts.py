"""Choosing the host for the next message (HostBalancer), and status lines about how long hosts take (Timings).

Pure, but for the log.

The three modes are those of Go's tools, with the constants of go-hostpool (github.com/bitly/go-hostpool). Durations are
seconds of a monotonic clock and are passed as arguments; so is the source of randomness.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from random import Random

from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.settings.declaration import Options, setting
from nsqd_py.settings.types import INT

ROUND_ROBIN = "round-robin"
HOSTPOOL = "hostpool"
EPSILON_GREEDY = "epsilon-greedy"
MODES = (ROUND_ROBIN, HOSTPOOL, EPSILON_GREEDY)

FIRST_RETRY_S = 30.0
LONGEST_RETRY_S = 900.0
FIRST_EPSILON = 0.3
LEAST_EPSILON = 0.01
EPSILON_DECAY = 0.9
# The weight of the newest duration in the average of a host.
_NEWEST = 0.1
_SHORTEST_S = 1e-6

# With fewer values, the percentiles of a status line are inaccurate.
FEW = 100
AGGREGATE = "aggregate"

# --- balancing


class _Host:
    """The state of one host. `retry_at_s` is 0 unless the host has failed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sending = 0
        self.retry_at_s = 0.0
        self.retry_delay_s = FIRST_RETRY_S
        self.average_s = 0.0  # 0 without a measurement

    def add(self, took_s: float) -> None:
        weight = _NEWEST if self.average_s else 1.0
        self.average_s += (max(took_s, _SHORTEST_S) - self.average_s) * weight


class HostBalancer:
    """Distributes messages to hosts.

    round-robin     every host in turn, including hosts that failed
    hostpool        every host in turn, except for failed ones. A failed host gets a single message after 30 s, then
                    after 1, 2, 4, 8 and 15 minutes. If all hosts have failed, all are used again
    epsilon-greedy  the same for a fraction of the messages, epsilon, which decreases from 30 % to 1 %. The others go to
                    hosts in proportion to their speed (Sutton & Barto, Reinforcement Learning, section 2.2)

    No host gets more than an equal quota of the messages that are being sent. So a host that hangs blocks only its
    quota; the other hosts get the other messages.
    """

    def __init__(self, mode: str, names: Sequence[str], total: int, random: Random) -> None:
        """`total` is the maximum number of messages that are sent at the same time."""
        self._mode = mode
        self._hosts = {name: _Host(name) for name in names}  # the one whose turn it is comes first
        self._total = total
        self._random = random
        self._epsilon = FIRST_EPSILON

    def take(self, now_s: float, without: Collection[str] = ()) -> str | None:
        """Return a host for one message and count it, or None if every usable host is in `without`."""
        usable = [host for host in self._usable(now_s) if host.name not in without]
        if not usable:
            return None
        # The quotas of the working hosts add up to at least the total, so one of them has room, unless it is in
        # `without`.
        working_count = sum(not host.retry_at_s for host in self._hosts.values())
        quota = -(-self._total // max(working_count, 1))
        below = [host for host in usable if host.sending < quota]
        host = self._choose(below or usable)
        if host.retry_at_s:  # in case this try fails too
            host.retry_delay_s = min(2 * host.retry_delay_s, LONGEST_RETRY_S)
            host.retry_at_s = now_s + host.retry_delay_s
        host.sending += 1
        return host.name

    def distribute(self, count: int, now_s: float, without: Collection[str]) -> Counter[str]:
        """Return hosts for `count` messages, with the number for each. Empty if every host is in `without`."""
        taken = (self.take(now_s, without) for _ in range(count))
        return Counter(name for name in taken if name is not None)

    def give_back(self, name: str, is_good: bool, took_s: float, now_s: float, count: int = 1) -> None:
        """Record the result of `count` messages, and how long they took."""
        host = self._hosts[name]
        host.sending -= count
        if is_good:
            host.retry_at_s = 0.0
            host.add(took_s)
        elif not host.retry_at_s and self._mode != ROUND_ROBIN:
            host.retry_delay_s = FIRST_RETRY_S
            host.retry_at_s = now_s + FIRST_RETRY_S

    def _usable(self, now_s: float) -> list[_Host]:
        hosts = list(self._hosts.values())
        usable = [host for host in hosts if host.retry_at_s < now_s or not host.retry_at_s]
        if not usable:  # all have failed
            for host in hosts:
                host.retry_at_s = 0.0
        return usable or hosts

    def _choose(self, hosts: Sequence[_Host]) -> _Host:
        if self._mode == EPSILON_GREEDY:
            measured = [host for host in hosts if host.average_s]
            if self._random.random() < self._epsilon:
                self._epsilon = max(self._epsilon * EPSILON_DECAY, LEAST_EPSILON)
            elif measured:
                weights = [1 / host.average_s for host in measured]
                return self._random.choices(measured, weights)[0]
        host = hosts[0]
        self._hosts[host.name] = self._hosts.pop(host.name)
        return host


# --- status lines


class StatusOptions(Options, title="Status"):
    """The settings of status lines."""

    status_every: int = setting(
        INT,
        250,
        "Number of messages between two status lines, for each destination and for all; 0 means no status lines.",
    )


class Timings:
    """Status lines after every `every` messages, for all and, if there are several hosts, for each; 0 disables them.

    [aggregate]: finished 250 - 99th: 1.91ms - 95th: 1.22ms - avg: 0.84ms
    """

    def __init__(self, hosts: Collection[str], every: int, log: Log) -> None:
        if 0 < every < FEW:
            log.warning(
                "use more than %d status values for accurate percentiles (configured with %d)", FEW, every
            )
        if len(set(hosts)) > 1:
            names = {AGGREGATE, *hosts}
        else:
            names = {AGGREGATE}
        if every > 0:
            self._took_s: dict[str, list[float]] = {name: [] for name in names}
        else:
            self._took_s = {}
        self._every = every
        self._log = log

    def add(self, took_s: float, *names: str, count: int = 1) -> None:
        """Record that `count` messages took `took_s` each, under these names: hosts, AGGREGATE."""
        for name in names:
            values = self._took_s.get(name)
            if values is None:
                continue
            values += [took_s] * count
            while len(values) >= self._every:
                self._log.info("[%s]: %s", name, status_line(values[: self._every]))
                del values[: self._every]


def status_line(took_s: Sequence[float]) -> str:
    """Return the status of these durations, as Go's tools write it. At least one is required."""
    ordered = sorted(took_s)
    average_ms = 1000 * sum(ordered) / len(ordered)
    return (
        f"finished {len(ordered)} - 99th: {1000 * percentile(99, ordered):.2f}ms"
        f" - 95th: {1000 * percentile(95, ordered):.2f}ms - avg: {average_ms:.2f}ms"
    )


def percentile(percent: float, ordered: Sequence[float]) -> float:
    """Return the value at the index that Go's tools use: half an index above the exact one, rounded up."""
    index = math.ceil(percent / 100 * len(ordered) + 0.5)
    return ordered[min(index, len(ordered) - 1)]
