"""Back-off: a consumer whose messages fail takes none for a while, then one, and goes on when that one succeeds.

A state machine without a clock (https://nsq.io/clients/building_client_libraries.html, "Backoff"). Of each wait only
one result counts, so that a hundred messages that fail together are one failure.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

# How long to wait at a level (1, 2, 3...), in seconds.
Duration = Callable[[int], float]

_LARGEST_EXPONENT = 62


class Phase(Enum):
    """How many messages may be asked for: as many as wished, none, or one."""

    FLOWING = "flowing"
    WAITING = "waiting"
    PROBING = "probing"


def exponential(multiplier_s: float) -> Duration:
    """go-nsq's `exponential`: the multiplier times 2 to the power of the level."""
    return lambda level: multiplier_s * 2.0 ** min(level, _LARGEST_EXPONENT)


def full_jitter(multiplier_s: float, chance: Callable[[], float]) -> Duration:
    """go-nsq's `full_jitter`: anything between nothing and the exponential duration; `chance` gives 0 to 1."""
    longest_s = exponential(multiplier_s)
    return lambda level: longest_s(level) * chance()


class Backoff:
    """The level, and the phase. A level rises only while its wait is not longer than `most_s`, as in go-nsq.

    Other than there, the first level always exists, cut to `most_s`; `most_s` 0 means never to back off.
    """

    __slots__ = ("_duration", "_most_s", "level", "phase", "until_s", "wait_s")

    def __init__(self, duration: Duration, most_s: float) -> None:
        self._duration = duration
        self._most_s = most_s
        self.level = 0
        self.phase = Phase.FLOWING
        self.wait_s = 0.0
        self.until_s: float | None = None

    def failed(self, now_s: float) -> bool:
        """A message failed. True: the phase is another, or a new wait has begun."""
        if self.phase is Phase.WAITING or self._most_s <= 0:
            return False
        if self.level == 0 or self._duration(self.level + 1) <= self._most_s:
            self.level += 1
        return self._wait(now_s)

    def continued(self, now_s: float) -> bool:
        """A message was requeued on purpose: neither a success nor a failure. As `failed`."""
        return self.phase is Phase.PROBING and self._wait(now_s)

    def succeeded(self, now_s: float) -> bool:
        """A message was finished. As `failed`."""
        if self.phase is not Phase.PROBING:
            return False
        self.level -= 1
        if self.level:
            return self._wait(now_s)
        self.phase = Phase.FLOWING
        self.wait_s = 0.0
        return True

    def expire(self, now_s: float) -> bool:
        """True: the wait is over, one message may be asked for."""
        if self.until_s is None or now_s < self.until_s:
            return False
        self.until_s = None
        self.phase = Phase.PROBING
        return True

    def _wait(self, now_s: float) -> bool:
        self.phase = Phase.WAITING
        self.wait_s = min(self._duration(self.level), self._most_s)
        self.until_s = now_s + self.wait_s
        return True
