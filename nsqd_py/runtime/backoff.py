"""How long to wait before the next attempt. Time is in seconds of a steady clock."""

from __future__ import annotations

import random
from collections.abc import Callable

_JITTER = 0.25


class Backoff:
    """Delays that double with every failure, each up to a quarter shorter, so that many nsqds do not come as one."""

    def __init__(self, first_s: float, most_s: float, chance: Callable[[], float] = random.random) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._chance = chance
        self._next_s = first_s
        self._not_before_s = 0.0

    def failed(self, now_s: float) -> None:
        """An attempt failed, or what it gave did not last."""
        delay_s = self._next_s * (1 - _JITTER * self._chance())
        self._next_s = min(self._next_s * 2, self._most_s)
        self._not_before_s = now_s + delay_s

    def reset(self) -> None:
        """It lasted: begin anew."""
        self._next_s = self._first_s

    def wait_s(self, now_s: float) -> float:
        """How long the next attempt has to wait from now on."""
        return max(0.0, self._not_before_s - now_s)
