"""How often a value lay where: counts between bounds, in the manner of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import inf


class Histogram:
    """Counts values up to each of the ascending `bounds`, and those above all."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = (*bounds, inf)
        self._counts = [0] * len(self._bounds)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """A value came: 0.3 us."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Each bound, infinity last, with how many values were not above it."""
        return list(zip(self._bounds, accumulate(self._counts), strict=True))
