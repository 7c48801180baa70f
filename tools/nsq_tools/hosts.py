"""Choosing the host for the next message: in turn, in turn without failed hosts, or faster hosts more often. Pure.

The tools use `HostShares`. The three modes are those of Go's tools. The constants and the design of `HostPool` and
`EpsilonGreedy` are those of go-hostpool (github.com/bitly/go-hostpool); epsilon-greedy is a strategy for multi-armed
bandits (Sutton & Barto, Reinforcement Learning, section 2.2). Two defects of go-hostpool are corrected:

- Durations are exact. go-hostpool truncates them to whole milliseconds and does not prefer a host of 0 ms, so that it
  sends nearly everything to the slow one of two hosts that take 0.5 ms and 5 ms.
- An average is divided by the sum of its weights. Otherwise a host that has been measured for longer seems slower.

RecentDurations are seconds of a monotonic clock and are passed as arguments; so is the source of randomness.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

ROUND_ROBIN = "round-robin"
HOSTPOOL = "hostpool"
EPSILON_GREEDY = "epsilon-greedy"

FIRST_RETRY_S = 30.0
LONGEST_RETRY_S = 900.0

FIRST_EPSILON = 0.3
LEAST_EPSILON = 0.01
EPSILON_DECAY = 0.9
MEMORY_S = 300.0
BUCKETS = 120
BUCKET_S = MEMORY_S / BUCKETS
_SHORTEST_S = 1e-6

# A number in [0, 1).
Random = Callable[[], float]
NO_HOSTS: frozenset[str] = frozenset()


class HostChooser(Protocol):
    """A strategy for choosing hosts."""

    def pick(self, now_s: float, without: Collection[str] = NO_HOSTS) -> str | None:
        """Return the next host that is not in `without`, or None if no host can be tried."""

    def mark(self, host: str, is_good: bool, took_s: float, now_s: float) -> None:
        """Record whether the host took a message, and after how many seconds."""

    def live_count(self) -> int:
        """Return the number of hosts that are not marked as failed."""


class RoundRobin:
    """Every host in turn, including hosts that failed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(dict.fromkeys(names))
        self._next = 0

    def pick(self, now_s: float, without: Collection[str] = NO_HOSTS) -> str | None:
        names = self._names
        for turn in range(self._next, self._next + len(names)):
            name = names[turn % len(names)]
            if name not in without:
                self._next = (turn + 1) % len(names)
                return name
        return None

    def mark(self, host: str, is_good: bool, took_s: float, now_s: float) -> None:
        """Do nothing: results do not influence this strategy."""

    def live_count(self) -> int:
        return len(self._names)


class _Host:
    """The state of one host: whether it has failed, and when it is tried again."""

    __slots__ = ("is_dead", "name", "retry_at_s", "retry_delay_s")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.retry_at_s = 0.0
        self.retry_delay_s = FIRST_RETRY_S

    def may_be_tried(self, now_s: float) -> bool:
        return not self.is_dead or self.retry_at_s < now_s

    def begin_try(self, now_s: float) -> None:
        """Double the time until the next try of a failed host, in case this try fails."""
        if self.is_dead:
            self.retry_delay_s = min(2 * self.retry_delay_s, LONGEST_RETRY_S)
            self.retry_at_s = now_s + self.retry_delay_s

    def fail(self, now_s: float) -> None:
        if not self.is_dead:
            self.is_dead = True
            self.retry_delay_s = FIRST_RETRY_S
            self.retry_at_s = now_s + self.retry_delay_s


class HostPool:
    """Every host in turn, except for failed ones.

    A failed host gets a single message after 30 s, then after 1, 2, 4, 8 and 15 minutes. If all hosts have failed, all
    are used again.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._hosts = {name: _Host(name) for name in names}
        self._turns = RoundRobin(names)

    def pick(self, now_s: float, without: Collection[str] = NO_HOSTS) -> str | None:
        dead = self._dead(now_s)
        if len(dead) == len(self._hosts):
            self._revive()
            dead.clear()
        name = self._turns.pick(now_s, dead.union(without) if dead else without)
        if name is not None:
            self._hosts[name].begin_try(now_s)
        return name

    def mark(self, host: str, is_good: bool, took_s: float, now_s: float) -> None:
        if is_good:
            self._hosts[host].is_dead = False
        else:
            self._hosts[host].fail(now_s)

    def live_count(self) -> int:
        return sum(not host.is_dead for host in self._hosts.values())

    def may_be_tried(self, host: str, now_s: float) -> bool:
        return self._hosts[host].may_be_tried(now_s)

    def _dead(self, now_s: float) -> set[str]:
        """Return the failed hosts that must not be tried yet."""
        return {host.name for host in self._hosts.values() if not host.may_be_tried(now_s)}

    def _revive(self) -> None:
        for host in self._hosts.values():
            host.is_dead = False


class RecentDurations:
    """Durations of one host in the last five minutes. Newer ones have a higher weight."""

    __slots__ = ("_buckets", "_index", "_last_s", "_older_s", "_older_weight")

    def __init__(self) -> None:
        self._buckets: deque[tuple[int, float]] = deque([(0, 0.0)] * BUCKETS, BUCKETS)
        self._index = 0
        self._older_s = self._older_weight = self._last_s = 0.0

    def add(self, took_s: float, now_s: float) -> None:
        self._advance(now_s)
        count, total_s = self._buckets[-1]
        self._buckets[-1] = (count + 1, total_s + took_s)

    def average_s(self, now_s: float) -> float | None:
        """Return the weighted average, or None without a measurement in the last five minutes."""
        self._advance(now_s)
        count, total_s = self._buckets[-1]
        weight = self._older_weight + (1.0 if count or self._older_weight else 0.0)
        return (self._older_s + (total_s / count if count else self._last_s)) / weight if weight else None

    def _advance(self, now_s: float) -> None:
        index = int(now_s / BUCKET_S)
        if index == self._index:
            return
        self._buckets.extend([(0, 0.0)] * min(index - self._index, BUCKETS))
        self._index = index
        self._weigh_older()

    def _weigh_older(self) -> None:
        """Sum up all buckets but the newest. An empty bucket counts as the one before it.

        This runs once a bucket, not once a pick.
        """
        self._older_s = self._older_weight = self._last_s = 0.0
        has_begun = False
        for place in range(BUCKETS - 1):
            count, total_s = self._buckets[place]
            if count:
                self._last_s = total_s / count
                has_begun = True
            if has_begun:
                weight = (place + 1) / BUCKETS
                self._older_s += self._last_s * weight
                self._older_weight += weight


class EpsilonGreedy:
    """Hosts in proportion to their speed: a host that takes half the time gets twice as many messages.

    A share of the messages, epsilon, goes to the hosts in turn, as in `HostPool`. Epsilon begins at 30 % and decreases
    with each of these messages, down to 1 %.
    """

    def __init__(self, names: Sequence[str], random: Random) -> None:
        self._pool = HostPool(names)
        self._times = {name: RecentDurations() for name in names}
        self._random = random
        self._epsilon = FIRST_EPSILON

    def pick(self, now_s: float, without: Collection[str] = NO_HOSTS) -> str | None:
        if self._random() < self._epsilon:
            self._epsilon = max(self._epsilon * EPSILON_DECAY, LEAST_EPSILON)
            return self._pool.pick(now_s, without)
        name = self._pick_by_speed(now_s, without)
        return self._pool.pick(now_s, without if name is None else self._times.keys() - {name})

    def mark(self, host: str, is_good: bool, took_s: float, now_s: float) -> None:
        self._pool.mark(host, is_good, took_s, now_s)
        if is_good:
            self._times[host].add(took_s, now_s)

    def live_count(self) -> int:
        return self._pool.live_count()

    def _pick_by_speed(self, now_s: float, without: Collection[str]) -> str | None:
        """Return a host at random, weighted by speed, or None if no host that may be tried has been measured."""
        speeds = self._speeds(now_s, without)
        rest = self._random() * sum(speeds.values())
        for name, speed in speeds.items():
            rest -= speed
            if rest < 0:
                return name
        return None

    def _speeds(self, now_s: float, without: Collection[str]) -> dict[str, float]:
        speeds = {}
        for name, times in self._times.items():
            if name not in without and self._pool.may_be_tried(name, now_s):
                average_s = times.average_s(now_s)
                if average_s is not None:
                    speeds[name] = 1 / max(average_s, _SHORTEST_S)
        return speeds


def make_hosts(mode: str, names: Sequence[str], random: Random) -> HostChooser:
    """Return the strategy of `mode`: ROUND_ROBIN, HOSTPOOL or EPSILON_GREEDY."""
    if mode == EPSILON_GREEDY:
        return EpsilonGreedy(names, random)
    return HostPool(names) if mode == HOSTPOOL else RoundRobin(names)


class HostShares:
    """Distributes messages to hosts. No host gets more than an equal share of the messages that are being sent.

    So a host that hangs blocks only its share; the other hosts get the other messages.
    """

    def __init__(self, hosts: HostChooser, names: Sequence[str], total: int) -> None:
        """`total` is the maximum number of messages that are sent at the same time."""
        self._hosts = hosts
        self._under_way = dict.fromkeys(names, 0)
        self._total = total

    def take(self, now_s: float, without: Collection[str] = NO_HOSTS) -> str | None:
        """Return a host for one message and count it, or None if every host is in `without`."""
        full = self._full()
        name = self._hosts.pick(now_s, full.union(without)) if full else None
        if name is None:  # no host has its full share; or all have, as more than `total` messages are being sent
            name = self._hosts.pick(now_s, without)
        if name is not None:
            self._under_way[name] += 1
        return name

    def distribute(self, count: int, now_s: float, without: Collection[str] = NO_HOSTS) -> dict[str, int]:
        """Return hosts for `count` messages, with the number for each. Empty if every host is in `without`."""
        counts: dict[str, int] = {}
        for _ in range(count):
            name = self.take(now_s, without)
            if name is not None:
                counts[name] = counts.get(name, 0) + 1
        return counts

    def give_back(self, host: str, is_good: bool, took_s: float, now_s: float, count: int = 1) -> None:
        """Record the result of `count` messages, and how long they took."""
        self._under_way[host] -= count
        self._hosts.mark(host, is_good, took_s, now_s)

    def _full(self) -> set[str]:
        # The shares of the working hosts add up to at least the total, so one of them always has room.
        share = -(-self._total // max(self._hosts.live_count(), 1))
        return {name for name, count in self._under_way.items() if count >= share}
