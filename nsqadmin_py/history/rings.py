"""Rings: the latest values of one figure, one for each step of time. Pure.

A step has a number, its time divided by its length; so rings need no times of their own. A value takes four bytes,
and a figure that never changes (most are 0) takes none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import isnan, nan

FLOAT = "f"
FLOAT_BYTES = 4


class Ring:
    """`capacity` steps back from the latest. A step of which nothing is known is NaN."""

    __slots__ = ("capacity", "first", "last", "_constant", "_values")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.first = 0  # of the steps that are known
        self.last = -1
        self._constant = nan
        self._values: array[float] | None = None  # None while all known steps have the same value

    def put(self, step: int, value: float) -> None:
        """The value at a step. One that is there already is replaced; one before the latest is left out."""
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
        """From one value for all steps to a value for each."""
        values = array(FLOAT, [nan]) * self.capacity
        for step in range(self.first, self.last + 1):
            values[step % self.capacity] = self._constant
        self._values = values

    def read(self, begin: int, end: int) -> list[float]:
        """The values of the steps from `begin` to before `end`."""
        low, high = max(begin, self.first), min(end, self.last + 1)
        if low >= high:
            return [nan] * max(0, end - begin)
        known = self._known(low, high).tolist()
        if high - low == end - begin:  # most are, and copying takes as long as all of the above
            return known
        return [nan] * (low - begin) + known + [nan] * (end - high)

    def _known(self, begin: int, end: int) -> array[float]:
        """Of steps that are all between the first and the last."""
        if self._values is None:
            return array(FLOAT, [self._constant]) * (end - begin)
        place = begin % self.capacity
        to_the_end = self._values[place : place + end - begin]
        return to_the_end + self._values[: end - begin - len(to_the_end)]

    def means(self, begin: int, width: int, count: int) -> list[float]:
        """The means of `count` spans of `width` steps each, from `begin` on."""
        if self._values is None and self.first <= begin and begin + width * count <= self.last + 1:
            return [self._constant] * count
        values = self.read(begin, begin + width * count)
        spans = (values[at : at + width] for at in range(0, width * count, width))
        # The sum of a span with a gap in it is NaN. Most have none, and need no look at each value: 25 us, not 120.
        return [mean(span) if isnan(total := sum(span)) else total / width for span in spans]

    def mean(self, begin: int, end: int) -> float:
        """Of the known values of these steps; NaN where there is none."""
        if self._values is None and self.first <= begin and end <= self.last + 1:
            return self._constant
        return mean(self.read(begin, end))

    # ---- as bytes

    def dump(self) -> tuple[int, int, bytes]:
        """First step, last step, and the values in between; a single one where all are the same."""
        if self._values is None:
            return self.first, self.last, array(FLOAT, [self._constant]).tobytes()
        return self.first, self.last, self._known(self.first, self.last + 1).tobytes()

    @classmethod
    def load(cls, capacity: int, first: int, last: int, data: bytes) -> Ring:
        """Of what `dump` gave. Raises ValueError."""
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
