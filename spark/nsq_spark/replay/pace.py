"""The pace of a task: how many messages it may send now. The time in seconds comes as an argument."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsq_spark.archive.columns import Numbers

SECOND_NS = 1_000_000_000
# A rate is kept in spite of short stops: this many seconds' worth of messages may leave at once.
_BURST_S = 0.1
# Messages that are due within this time are sent together: 100 commands a second, not one for each message.
_TOGETHER_NS = 10_000_000
# No wait is shorter: what is missing may be less than the clock can show.
_LEAST_WAIT_S = 0.001


@dataclass(frozen=True, slots=True)
class PaceOfTask:
    """A task's share of the pace of the job.

    rate       messages a second, of this task
    speed      how many times as fast as they were published; 1 keeps the gaps
    origin_ns  the timestamp that is due at `start_s`, by the wall clock that all machines share
    """

    rate: float | None = None
    speed: float | None = None
    origin_ns: int = 0
    start_s: float = 0.0

    def begin(self, now_s: float, wall_s: float) -> Pace:
        """Return the pace from now on. `now_s` and `wall_s` are the same moment by the task's clock and the wall's."""
        return Pace(self, now_s, now_s + self.start_s - wall_s)


class Pace:
    """A token bucket for the rate, and a schedule for the timestamps; both hold.

    A message of `origin_ns` is due at `start_s`. A late message leaves at once, and does not shift those behind it.
    """

    def __init__(self, share: PaceOfTask, now_s: float, start_s: float) -> None:
        self._share = share
        self._rate = share.rate
        self._most = max(1.0, (share.rate or 0.0) * _BURST_S)
        self._tokens = 1.0
        self._filled_s = now_s
        self._start_s = start_s

    def ready(self, times_ns: Numbers | None, count: int, now_s: float) -> int:
        """Return how many of the next `count` messages, with these timestamps, may be sent now."""
        if self._rate is not None:
            self._tokens = min(self._most, self._tokens + self._rate * max(0.0, now_s - self._filled_s))
            self._filled_s = now_s
            count = min(count, int(self._tokens))
        if self._share.speed is not None:
            assert times_ns is not None
            count = int(np.searchsorted(times_ns[:count], self._time_ns(now_s), "right"))
        return count

    def wait_s(self, times_ns: Numbers | None, now_s: float) -> float:
        """Return the time until messages may be sent again: several, not one for each wake-up."""
        wait_s = _LEAST_WAIT_S
        if self._rate is not None:
            wanted = max(1.0, self._most / 2)
            wait_s = max(wait_s, (wanted - self._tokens) / self._rate - (now_s - self._filled_s))
        if self._share.speed is not None:
            assert times_ns is not None
            ahead_ns = int(times_ns[0]) - self._time_ns(now_s) + _TOGETHER_NS * self._share.speed / 2
            wait_s = max(wait_s, ahead_ns / self._share.speed / SECOND_NS)
        return wait_s

    def sent(self, count: int) -> None:
        if self._rate is not None:
            self._tokens -= count

    def _time_ns(self, now_s: float) -> int:
        """Return the time of the archive that is due now."""
        speed = self._share.speed or 0.0
        return self._share.origin_ns + round((now_s - self._start_s) * speed * SECOND_NS)
