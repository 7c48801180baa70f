"""Bodies that differ, of several sizes, so that records end anywhere."""

from __future__ import annotations

import itertools
import threading

NUMBER_DIGITS = 9
_STEP = 37


class Bodies:
    """Makes bodies that were never used before: a prefix, a number, and filler. Any thread may take some."""

    def __init__(self, prefix: str = "", longest_bytes: int = 400) -> None:
        self._prefix = prefix.encode()
        self._longest_bytes = longest_bytes
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def take(self, count: int) -> list[bytes]:
        """Return as many new bodies; they have no newlines."""
        with self._lock:
            numbers = list(itertools.islice(self._numbers, count))
        return [self._body(number) for number in numbers]

    def _body(self, number: int) -> bytes:
        head = self._prefix + b"%0*d" % (NUMBER_DIGITS, number)
        return head + b"x" * (number * _STEP % self._longest_bytes)
