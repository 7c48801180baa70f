"""Rings: the latest values of one figure, one for each time step. Pure.

The number of a step is its time divided by the step's length, so rings need not store times. A value takes four bytes.
A figure that never changes (most are 0) takes none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import isnan, nan

FLOAT = "f"
FLOAT_BYTES = 4


class Ring:
    """The values of the last `capacity` steps. A step whose value is unknown is NaN."""

    __slots__ = ("capacity", "first", "last", "_constant", "_values")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.first = 0  # the first known step
        self.last = -1
        self._constant = nan
        self._values: array[float] | None = None  # None while all known steps have the same value

    def put(self, step: int, value: float) -> None:
        """Set the value of a step. It replaces an existing value; a step before the latest is ignored."""
        if self.last < 0:
            self.first, self.last, self._constant = step, step, value
            return
        if step < self.last:
            return
        if self._values is None:
            if value == self._constant and step - self.last <= 1:
                self._advance(step)
                return
            self._spread()
        values = self._values
        assert values is not None
        for missing in range(max(self.last + 1, step - self.capacity + 1), step):
            values[missing % self.capacity] = nan
        values[step % self.capacity] = value
        self._advance(step)

    def _advance(self, step: int) -> None:
        self.last = step
        if step - self.first >= self.capacity:
            self.first = step - self.capacity + 1

    def _spread(self) -> None:
        """Store a value for each step in place of one for all."""
        values = array(FLOAT, [nan]) * self.capacity
        for step in range(self.first, self.last + 1):
            values[step % self.capacity] = self._constant
        self._values = values

    def read(self, begin: int, end: int) -> list[float]:
        """Return the values of the steps from `begin` to before `end`."""
        low, high = max(begin, self.first), min(end, self.last + 1)
        if low >= high:
            return [nan] * max(0, end - begin)
        known = self._known(low, high).tolist()
        if high - low == end - begin:  # true for most, and copying would take as long as all of the above
            return known
        return [nan] * (low - begin) + known + [nan] * (end - high)

    def _known(self, begin: int, end: int) -> array[float]:
        """Return the values of steps that all lie between the first and the last."""
        if self._values is None:
            return array(FLOAT, [self._constant]) * (end - begin)
        place = begin % self.capacity
        to_the_end = self._values[place : place + end - begin]
        return to_the_end + self._values[: end - begin - len(to_the_end)]

    def means(self, begin: int, width: int, count: int) -> list[float]:
        """Return the means of `count` spans of `width` steps each, beginning with step `begin`."""
        if self._values is None and self.first <= begin and begin + width * count <= self.last + 1:
            return [self._constant] * count
        values = self.read(begin, begin + width * count)
        spans = (values[at : at + width] for at in range(0, width * count, width))
        # The sum of a span with a gap is NaN. Most have none, so their values are not checked: 25 us, not 120.
        return [mean(span) if isnan(total := sum(span)) else total / width for span in spans]

    def summary(self, begin: int, end: int) -> tuple[float, float, float]:
        """Return the mean, lowest and highest of the known values of these steps; NaN if there are none."""
        if self._values is None and self.first <= begin and end <= self.last + 1:
            return self._constant, self._constant, self._constant
        known = [value for value in self.read(begin, end) if not isnan(value)]
        return (sum(known) / len(known), min(known), max(known)) if known else (nan, nan, nan)

    # ---- as bytes

    def dump(self) -> tuple[int, int, bytes]:
        """Return the first step, the last step, and the values; a single value if all are equal."""
        if self._values is None:
            return self.first, self.last, array(FLOAT, [self._constant]).tobytes()
        return self.first, self.last, self._known(self.first, self.last + 1).tobytes()

    @classmethod
    def load(cls, capacity: int, first: int, last: int, data: bytes) -> Ring:
        """Return a ring from the result of `dump`. Raises ValueError."""
        values: array[float] = array(FLOAT)
        values.frombytes(data)
        ring = cls(capacity)
        if not 0 <= first <= last or last - first >= capacity or len(values) not in (1, last - first + 1):
            raise ValueError("steps and values do not fit")
        ring.first, ring.last = first, last
        if len(values) == 1:
            ring._constant = values[0]
        else:
            place = first % capacity
            until_end = values[: capacity - place]
            spread: array[float] = array(FLOAT, [nan]) * capacity
            spread[place : place + len(until_end)] = until_end
            spread[: len(values) - len(until_end)] = values[len(until_end) :]
            ring._values = spread
        return ring

    @property
    def size_bytes(self) -> int:
        return 0 if self._values is None else FLOAT_BYTES * self.capacity


def mean(values: Iterable[float]) -> float:
    known = [value for value in values if not isnan(value)]
    return sum(known) / len(known) if known else nan
