"""How many messages may leave: `--rate` a second, and what was not used in one second may be in the next."""

from __future__ import annotations


class RateLimit:
    """Allows `per_second` messages a second; the first one at once. Times are seconds of a steady clock."""

    def __init__(self, per_second: int, now_s: float) -> None:
        self._per_second = per_second
        self._allowed = 1.0
        self._at_s = now_s

    def take(self, wanted: int, now_s: float) -> int:
        """How many of `wanted` may leave now; they count as gone."""
        earned = (now_s - self._at_s) * self._per_second
        self._at_s = now_s
        self._allowed = min(self._allowed + earned, float(max(self._per_second, 1)))
        granted = min(wanted, int(self._allowed))
        self._allowed -= granted
        return granted

    def wait_s(self) -> float:
        """How long until there is a next one, counted from the last `take`."""
        return max(1.0 - self._allowed, 0.0) / self._per_second
