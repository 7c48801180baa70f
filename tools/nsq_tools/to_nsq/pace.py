"""The speed of --rate: when the next messages may leave, and how much is read for them. Pure."""

from __future__ import annotations

# The maximum size of a read, and so of an MPUB. A larger one needs less work for each record, but delays the first.
CHUNK_BYTES = 256 << 10
# Messages of --rate are sent in steps of this length.
_STEP_S = 0.02
# What is read at once takes this time to publish, if its records are as long as those before. A stop publishes the rest of it.
_READ_AHEAD_S = 0.5
_SHORTEST_RECORD_BYTES = 2  # with its delimiter


class Pace:
    """The pace of at most `rate` messages a second; 0 means no limit.

    chunk_bytes  how much may be read at once
    """

    def __init__(self, rate: int) -> None:
        self._rate = max(0, rate)
        self._next_s = 0.0
        self._fewest_bytes = CHUNK_BYTES
        if rate > 0:
            self._fewest_bytes = min(rate * _SHORTEST_RECORD_BYTES, CHUNK_BYTES)
        self.chunk_bytes = self._fewest_bytes

    def has_read(self, size_bytes: int, count: int) -> None:
        """Adapt the size of the next read to the records of the last one: `count` of them ended in `size_bytes`."""
        fitting = 2 * self.chunk_bytes
        if count:
            fitting = int(size_bytes / count * self._rate * _READ_AHEAD_S)
        self.chunk_bytes = min(max(fitting, self._fewest_bytes), CHUNK_BYTES)

    def step(self, count: int) -> int:
        """Return how many of `count` messages may leave together."""
        if not self._rate:
            return count
        return min(count, max(1, round(self._rate * _STEP_S)))

    def wait_s(self, now_s: float) -> float:
        """Return the time until the next messages may leave."""
        return max(0.0, self._next_s - now_s)

    def has_sent(self, count: int, now_s: float) -> None:
        if self._rate:
            self._next_s = now_s + count / self._rate
