"""Does a figure grow? The Theil-Sen slope after a warm-up, against a stated bound.

The slope is the median of the slopes between all pairs of samples (P. K. Sen, 1968): single peaks do not change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

WARM_UP_SHARE = 0.25
FEWEST_SAMPLES = 8
MOST_SAMPLES = 240  # 29,000 pairs


@dataclass(frozen=True, slots=True)
class Bound:
    """The growth that is allowed between the end of the warm-up and the end: a part of the median, and a constant."""

    share: float
    constant: float

    def of(self, level: float) -> float:
        return self.share * level + self.constant


@dataclass(frozen=True, slots=True)
class Trend:
    """The median of a figure after the warm-up, and its growth from there to the end."""

    level: float
    growth: float
    allowed: float

    @property
    def is_steady(self) -> bool:
        return self.growth <= self.allowed


def thinned(samples: Sequence[float], most: int) -> list[float]:
    """Return the medians of at most `most` groups of consecutive samples."""
    size = -(-len(samples) // most)
    return (
        [median(samples[start : start + size]) for start in range(0, len(samples), size)] if samples else []
    )


def theil_sen(values: Sequence[float]) -> float:
    """Return the median slope per step between all pairs of evenly spaced values. Raises ValueError for fewer than two."""
    if len(values) < 2:
        raise ValueError("a slope needs two values")
    pairs = combinations(enumerate(values), 2)
    return median((later - earlier) / (there - here) for (here, earlier), (there, later) in pairs)


def trend(samples: Sequence[float], bound: Bound) -> Trend | None:
    """Return the trend of evenly spaced samples; None if too few are left after the warm-up."""
    values = thinned(samples[round(WARM_UP_SHARE * len(samples)) :], MOST_SAMPLES)
    if len(values) < FEWEST_SAMPLES:
        return None
    level = median(values)
    return Trend(level, theil_sen(values) * (len(values) - 1), bound.of(level))
