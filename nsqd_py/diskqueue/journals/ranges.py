"""Sets of numbers as ranges.

`SeqRanges` has the sequence numbers that a channel has finished: everything below a floor, and some islands above it.
`ByteRanges` has bytes of a file. The functions work on lists of ranges of either.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

Range = tuple[int, int]  # numbers low..high (not included)


# ---- sequence numbers


class SeqRanges:
    """The sequence numbers that a channel has finished.

    Each number is added once. Adjacent ranges are merged when they are added, in constant time; the islands are sorted
    only when they are asked for in order.
    """

    __slots__ = ("_by_end", "_by_start", "_starts", "floor")

    def __init__(self, floor: int = 0, ranges: Iterable[Range] = ()) -> None:
        self.floor = floor
        self._by_start: dict[int, int] = {}
        self._by_end: dict[int, int] = {}
        self._starts: list[int] | None = None
        for low, high in ranges:
            self.add(low, high)

    def add(self, low: int, high: int) -> None:
        """Add `low` to `high` (not included), none of which may be in the set yet."""
        by_start = self._by_start
        if low == self.floor:
            while high in by_start:
                end = by_start.pop(high)
                del self._by_end[end]
                high = end
                self._starts = None
            self.floor = high
            return
        by_end = self._by_end
        if low in by_end:
            low = by_end.pop(low)
            del by_start[low]
        if high in by_start:
            end = by_start.pop(high)
            del by_end[end]
            high = end
        by_start[low] = high
        by_end[high] = low
        self._starts = None

    def add_missing(self, low: int, high: int) -> None:
        """Add those of `low` to `high` that are not in the set. Sorts the islands; for many ranges, use `add_all_missing`."""
        self.add_all_missing([(low, high)])

    def add_all_missing(self, ranges: Iterable[Range]) -> None:
        """Add those numbers of the ranges that are not in the set."""
        for low, high in self.gaps_in(union(ranges)):
            self.add(low, high)

    def _sorted_starts(self) -> list[int]:
        if self._starts is None:
            self._starts = sorted(self._by_start)
        return self._starts

    def islands(self) -> list[Range]:
        """Return the ranges above the floor, in rising order."""
        return [(start, self._by_start[start]) for start in self._sorted_starts()]

    def unordered_islands(self) -> list[Range]:
        """Return the ranges above the floor in no order: 10 ms for 300,000."""
        return list(self._by_start.items())

    @property
    def islands_end(self) -> int:
        """The number after the last one in the set."""
        starts = self._sorted_starts()
        return self._by_start[starts[-1]] if starts else self.floor

    @property
    def island_count(self) -> int:
        return len(self._by_start)

    def gaps(self, low: int, high: int) -> Iterator[Range]:
        """Yield the parts of `low` to `high` that are not in the set, in rising order."""
        position = max(low, self.floor)
        starts = self._sorted_starts()
        for index in range(max(0, bisect_right(starts, position) - 1), len(starts)):
            start = starts[index]
            if start >= high:
                break
            if start > position:
                yield position, start
            position = max(position, self._by_start[start])
        if position < high:
            yield position, high

    def gaps_in(self, ranges: Iterable[Range]) -> list[Range]:
        """Return the parts of these ranges that are not in the set, in their order."""
        return [gap for low, high in ranges for gap in self.gaps(low, high)]

    def parts(self, low: int, high: int) -> Iterator[Range]:
        """Yield the parts of `low` to `high` that are in the set, in rising order."""
        for gap_low, gap_high in self.gaps(low, high):
            if low < gap_low:
                yield low, gap_low
            low = gap_high
        if low < high:
            yield low, high

    def covers(self, low: int, high: int) -> bool:
        """True if all of `low` to `high` is in the set."""
        return high <= self.floor or next(self.gaps(low, high), None) is None


# ---- lists of ranges


def runs_of(numbers: list[int]) -> Iterator[Range]:
    """Yield distinct numbers as ranges (low, high not included), in rising order."""
    if len(numbers) == 1:
        yield numbers[0], numbers[0] + 1
        return
    low = min(numbers)
    high = max(numbers) + 1
    if high - low == len(numbers):  # distinct, so this is all of them: the common case, in C
        yield low, high
        return
    ordered = sorted(numbers)
    low = ordered[0]
    previous = low
    for number in ordered[1:]:
        if number != previous + 1:
            yield low, previous + 1
            low = number
        previous = number
    yield low, previous + 1


def ranges_of(numbers: SeqRanges) -> list[Range]:
    """Return all numbers of a set as ranges, in rising order."""
    floor = [(0, numbers.floor)] if numbers.floor else []
    return [*floor, *numbers.islands()]


def union(ranges: Iterable[Range]) -> list[Range]:
    """Return the union of the ranges, as few ranges as possible, in rising order."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            low, last_high = merged.pop()
            high = max(high, last_high)
        merged.append((low, high))
    return merged


def is_within(inner: Sequence[Range], outer: Sequence[Range]) -> bool:
    """True if each number of `inner` is in `outer`; both must be results of `union`."""
    index = 0
    for low, high in inner:
        while index < len(outer) and outer[index][1] < high:
            index += 1
        if index == len(outer) or outer[index][0] > low:
            return False
    return True


def count_of(ranges: Iterable[Range]) -> int:
    return sum(high - low for low, high in ranges)


def common(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Return the intersection of two sets of ranges."""
    found = []
    left = union(ranges)
    right = union(others)
    index = 0
    for low, high in left:
        while index < len(right) and right[index][1] <= low:
            index += 1
        at = index
        while at < len(right) and right[at][0] < high:
            found.append((max(low, right[at][0]), min(high, right[at][1])))
            at += 1
    return found


def minus(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """Return the parts of the ranges that are not in the others."""
    return SeqRanges(0, union(others)).gaps_in(ranges)


# ---- bytes of a file


class ByteRanges:
    """A set of bytes of a file, as sorted ranges that do not overlap."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[Range] = []

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def overlapping(self, start: int, end: int) -> list[Range]:
        """Return the ranges that have bytes of this one."""
        return self._ranges[self._slice_of(start, end)]

    def add(self, start: int, end: int) -> int:
        """Add a range to those that it overlaps; return how many bytes are new."""
        part = self._slice_of(start, end)
        known = self._ranges[part]
        if known:
            start = min(start, known[0][0])
            end = max(end, known[-1][1])
        self._ranges[part] = [(start, end)]
        return end - start - count_of(known)

    def remove(self, start: int, end: int) -> int:
        """Remove the bytes of a range; return how many were there."""
        part = self._slice_of(start, end)
        known = self._ranges[part]
        outside = []
        for low, high in known:
            if low < start:
                outside.append((low, start))
            if end < high:
                outside.append((end, high))
        self._ranges[part] = outside
        return count_of(known) - count_of(outside)

    def _slice_of(self, start: int, end: int) -> slice:
        first = bisect_left(self._ranges, (start, start))
        if first and self._ranges[first - 1][1] > start:
            first -= 1
        return slice(first, bisect_left(self._ranges, (end, end), first))
