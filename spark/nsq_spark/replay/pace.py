"""How many messages may leave at a time. No clock in here: the time in seconds comes as an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nsq_spark.archive.columns import Numbers

SECOND_NS = 1_000_000_000
# What is allowed to gather while nothing is sent, so that a rate is kept in spite of short stops.
_BURST_S = 0.1
# Messages that are due within so short a time go together: 100 commands a second, not one a message.
_TOGETHER_NS = 10_000_000
# No wait is shorter: what is missing may be less than the clock can show.
_LEAST_WAIT_S = 0.001


class Pace(Protocol):
    """Asked before messages are sent, told afterwards."""

    def ready(self, times_ns: Numbers | None, count: int, now_s: float) -> int:
        """How many of the next `count` may be sent now; `times_ns` are their timestamps."""

    def wait_s(self, times_ns: Numbers | None, now_s: float) -> float:
        """How long until the next may be."""

    def sent(self, count: int) -> None: ...


class Unlimited:
    """As fast as it goes."""

    def ready(self, times_ns: Numbers | None, count: int, now_s: float) -> int:
        return count

    def wait_s(self, times_ns: Numbers | None, now_s: float) -> float:
        return 0.0

    def sent(self, count: int) -> None:
        pass


class TokenBucket:
    """`rate` messages a second, and no more than a tenth of a second's at once."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate * _BURST_S)
        self._tokens = 1.0
        self._filled_s = now_s

    def ready(self, times_ns: Numbers | None, count: int, now_s: float) -> int:
        self._tokens = min(self._most, self._tokens + self._rate * max(0.0, now_s - self._filled_s))
        self._filled_s = now_s
        return min(count, int(self._tokens))

    def wait_s(self, times_ns: Numbers | None, now_s: float) -> float:
        """Until half of what may gather has: not a wake-up a message."""
        wanted = max(1.0, self._most / 2)
        return max(_LEAST_WAIT_S, (wanted - self._tokens) / self._rate - (now_s - self._filled_s))

    def sent(self, count: int) -> None:
        self._tokens -= count


class Schedule:
    """Each message at the time that its timestamp has on a clock that runs `speed` times as fast.

    A message of `origin_ns` is due at `start_s`. One that is late leaves at once, and shifts nothing behind it.
    """

    def __init__(self, speed: float, origin_ns: int, start_s: float) -> None:
        self._speed = speed
        self._origin_ns = origin_ns
        self._start_s = start_s

    def ready(self, times_ns: Numbers | None, count: int, now_s: float) -> int:
        assert times_ns is not None
        return int(np.searchsorted(times_ns[:count], self._time_ns(now_s), "right"))

    def wait_s(self, times_ns: Numbers | None, now_s: float) -> float:
        assert times_ns is not None
        together_ns = _TOGETHER_NS * self._speed
        ahead_ns = int(times_ns[0]) - self._time_ns(now_s)
        return max(_LEAST_WAIT_S, (ahead_ns + together_ns / 2) / self._speed / SECOND_NS)

    def sent(self, count: int) -> None:
        pass

    def _time_ns(self, now_s: float) -> int:
        """What the archive's clock shows."""
        return self._origin_ns + round((now_s - self._start_s) * self._speed * SECOND_NS)


class Both:
    """What each of two allows."""

    def __init__(self, one: Pace, other: Pace) -> None:
        self._one = one
        self._other = other

    def ready(self, times_ns: Numbers | None, count: int, now_s: float) -> int:
        return min(self._one.ready(times_ns, count, now_s), self._other.ready(times_ns, count, now_s))

    def wait_s(self, times_ns: Numbers | None, now_s: float) -> float:
        return max(self._one.wait_s(times_ns, now_s), self._other.wait_s(times_ns, now_s))

    def sent(self, count: int) -> None:
        self._one.sent(count)
        self._other.sent(count)


@dataclass(frozen=True, slots=True)
class PaceOfTask:
    """A task's part of the pace of the job.

    rate       messages a second, of this task
    speed      of the archive's time, and the time that is sent at `start_s`, by the clock of all machines
    """

    rate: float | None = None
    speed: float | None = None
    origin_ns: int = 0
    start_s: float = 0.0

    def begin(self, now_s: float, wall_s: float) -> Pace:
        """`now_s` by the clock that it will be asked with, `wall_s` at the same moment by that of all machines."""
        paces: list[Pace] = []
        if self.rate is not None:
            paces.append(TokenBucket(self.rate, now_s))
        if self.speed is not None:
            paces.append(Schedule(self.speed, self.origin_ns, now_s + self.start_s - wall_s))
        if not paces:
            return Unlimited()
        return paces[0] if len(paces) == 1 else Both(paces[0], paces[1])
