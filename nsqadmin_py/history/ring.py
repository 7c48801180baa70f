"""A ring: the latest values of one metric, one for each time step. Pure.

The number of a step is its time divided by the step's length, so rings need not store times. A value takes
four bytes. A metric that never changes (most are 0) takes none.
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
            self.first = step
            self.last = step
            self._constant = value
            return
        if step < self.last:
            return
        if self._values is None:
            if value == self._constant and step - self.last <= 1:
                self._advance(step)
                return
            known = self._known(self.first, self.last + 1)
            self._values = self._spread(known)
        values = self._values
        for missing in range(max(self.last + 1, step - self.capacity + 1), step):
            values[missing % self.capacity] = nan
        values[step % self.capacity] = value
        self._advance(step)

    def _advance(self, step: int) -> None:
        self.last = step
        if step - self.first >= self.capacity:
            self.first = step - self.capacity + 1

    def _spread(self, values: array[float]) -> array[float]:
        """Return the values of all known steps in the positions of their steps."""
        spread = array(FLOAT, [nan]) * self.capacity
        start = self.first % self.capacity
        to_the_end = values[: self.capacity - start]
        count = len(to_the_end)
        spread[start : start + count] = to_the_end
        spread[: len(values) - count] = values[count:]
        return spread

    def read(self, begin: int, end: int) -> list[float]:
        """Return the values of the steps from `begin` to before `end`."""
        low = max(begin, self.first)
        high = min(end, self.last + 1)
        if low >= high:
            return [nan] * max(0, end - begin)
        known = self._known(low, high).tolist()
        if high - low == end - begin:  # true for most, and copying would take as long as all of the above
            return known
        before = [nan] * (low - begin)
        after = [nan] * (end - high)
        return before + known + after

    def _known(self, begin: int, end: int) -> array[float]:
        """Return the values of steps that all lie between the first and the last."""
        if self._values is None:
            return array(FLOAT, [self._constant]) * (end - begin)
        start = begin % self.capacity
        count = end - begin
        to_the_end = self._values[start : start + count]
        return to_the_end + self._values[: count - len(to_the_end)]

    # ---- as bytes

    def dump(self) -> tuple[int, int, bytes]:
        """Return the first step, the last step, and the values; a single value if all are equal."""
        if self._values is None:
            end = self.first + 1
        else:
            end = self.last + 1
        values = self._known(self.first, end)
        return self.first, self.last, values.tobytes()

    @classmethod
    def load(cls, capacity: int, first: int, last: int, data: bytes) -> Ring:
        """Return a ring from the result of `dump`. Raises ValueError."""
        values: array[float] = array(FLOAT)
        values.frombytes(data)
        ring = cls(capacity)
        if not 0 <= first <= last or last - first >= capacity or len(values) not in (1, last - first + 1):
            raise ValueError("steps and values do not fit")
        ring.first = first
        ring.last = last
        ring._constant = values[0]
        if len(values) > 1:
            ring._values = ring._spread(values)
        return ring

    @property
    def size_bytes(self) -> int:
        if self._values is None:
            return 0
        return FLOAT_BYTES * self.capacity


def mean(values: Iterable[float]) -> float:
    known = [value for value in values if not isnan(value)]
    if known:
        return sum(known) / len(known)
    return nan
