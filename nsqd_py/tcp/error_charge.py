"""Count the errors of a client, so that a client with too many can be served more slowly. Pure."""

from __future__ import annotations

# A consumer that answers all its in-flight messages too late (2,500 by default) causes that number of errors at once.
ERRORS_AT_ONCE = 10_000
ERRORS_PER_S = 1_000


class ErrorCharge:
    """The error count of one client, which decreases by ERRORS_PER_S each second."""

    __slots__ = ("_count", "_since_s")

    def __init__(self, now_s: float) -> None:
        self._count = 0.0
        self._since_s = now_s

    def add(self, now_s: float) -> bool:
        """Count an error. Return True if there are too many now."""
        self._count += 1
        return self._count > ERRORS_AT_ONCE and self.is_over(now_s)

    def is_over(self, now_s: float) -> bool:
        """True if there are too many errors. After ten seconds without errors it is always False."""
        left = min(self._count, 2 * ERRORS_AT_ONCE) - (now_s - self._since_s) * ERRORS_PER_S
        self._count, self._since_s = max(0.0, left), now_s
        return self._count > ERRORS_AT_ONCE
