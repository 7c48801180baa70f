"""Counts the errors that a client causes, so that it can be served more slowly. Pure."""

from __future__ import annotations

# A consumer that is late with all that is in flight to it, 2,500 messages by default, causes as many errors at once.
ERRORS_AT_ONCE = 10_000
ERRORS_PER_S = 1_000


class ErrorCharge:
    """The errors of one client: each counts, and ERRORS_PER_S are forgotten each second."""

    __slots__ = ("_count", "_since_s")

    def __init__(self, now_s: float) -> None:
        self._count = 0.0
        self._since_s = now_s

    def add(self, now_s: float) -> bool:
        """Count an error; True if there are too many now."""
        self._count += 1
        return self._count > ERRORS_AT_ONCE and self.is_over(now_s)

    def is_over(self, now_s: float) -> bool:
        """True if there are too many errors. Ten seconds without any are always enough to be forgiven."""
        left = min(self._count, 2 * ERRORS_AT_ONCE) - (now_s - self._since_s) * ERRORS_PER_S
        self._count, self._since_s = max(0.0, left), now_s
        return self._count > ERRORS_AT_ONCE
