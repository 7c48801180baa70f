"""When the messages of a task may leave: a rate, the gaps of the archive, or both. Time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nsq_spark.archive.splits import Numbers
from nsqd_py.settings.durations import SECOND_NS

# A rate and a speed are reached in spite of short stops: this many seconds' worth of messages may leave at once.
_BURST_S = 0.1
# Messages that are due within this time are sent together: 100 commands a second, not one for each message.
_TOGETHER_S = 0.01
# No wait is shorter: what is missing may be less than the clock can show.
_LEAST_WAIT_S = 0.001


@dataclass(slots=True)
class Pace:
    """A task's share of the pace of the job: a token bucket for the rate, and a schedule for the timestamps; both hold.

    rate         messages a second, of this task
    speed        how many times as fast as they were published; 1 keeps the gaps
    origin_ns    the timestamp that is due when the first message is ready to leave; None: that of this message
    catches_up   after a stall, late messages leave at once; otherwise all messages behind the stall leave later

    The schedule begins when the first message is ready to leave: how long Spark reads and sorts before that has no effect.
    """

    rate: float | None = None
    speed: float | None = None
    origin_ns: int | None = None
    catches_up: bool = False
    _tokens: float = 1.0
    _filled_s: float = 0.0
    _start_s: float | None = None  # when a message of the origin is due

    def begin(self, now_s: float) -> Pace:
        """Return the pace from now on, by the task's clock."""
        return replace(self, _filled_s=now_s)

    def take(self, times_ns: Numbers, now_s: float) -> int:
        """Return how many of the next messages, which have these timestamps, leave now."""
        rate = self.rate
        speed = self.speed
        count = len(times_ns)
        if rate:
            self._tokens = min(
                max(1.0, rate * _BURST_S), self._tokens + rate * max(0.0, now_s - self._filled_s)
            )
            self._filled_s = now_s
            count = min(count, int(self._tokens))
        if speed:
            first_ns = int(times_ns[0])
            due_ns = first_ns + round(self._late_s(first_ns, speed, now_s) * speed * SECOND_NS)
            count = int(np.searchsorted(times_ns[:count], due_ns, "right"))
        self._tokens -= count
        return count

    def wait_s(self, times_ns: Numbers, now_s: float) -> float:
        """Return the time until messages may be sent again: several, not one for each wake-up."""
        rate = self.rate
        speed = self.speed
        wait_s = _LEAST_WAIT_S
        if rate:
            needed = max(1.0, rate * _BURST_S / 2)
            wait_s = max(wait_s, (needed - self._tokens) / rate - (now_s - self._filled_s))
        if speed:
            wait_s = max(wait_s, _TOGETHER_S / 2 - self._late_s(int(times_ns[0]), speed, now_s))
        return wait_s

    def _late_s(self, time_ns: int, speed: float, now_s: float) -> float:
        """Return for how long a message, the next one, has been due; less than 0 if it is not yet."""
        if self.origin_ns is None:
            self.origin_ns = time_ns
        if self._start_s is None:
            self._start_s = now_s
        late_s = now_s - self._start_s - (time_ns - self.origin_ns) / speed / SECOND_NS
        if late_s > _BURST_S and not self.catches_up:
            self._start_s += late_s
            return 0.0
        return late_s
