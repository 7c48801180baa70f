"""Places of messages in the order in which they are sent, and ranges of such places that are done with.

A mark is (time, file, position): the timestamp in ns where messages go in order of time, else 0; the number of the
file in the list of the job; the position in the file. Marks are compared as they are written. They do not depend on
how the work is cut into tasks.

A lane is an order of messages: "" is that of files, another one has a name (a topic, a part of a shuffle).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nsq_spark.archive.columns import Numbers

Mark: TypeAlias = tuple[int, int, int]

BY_FILE = ""
LAST_POSITION = (1 << 63) - 1
BEFORE_ALL: Mark = (-(1 << 63), -1, -1)
AFTER_ALL: Mark = (LAST_POSITION, LAST_POSITION, LAST_POSITION)


class Range(NamedTuple):
    """All messages of a lane behind `low`, up to and with `high`."""

    low: Mark
    high: Mark


class Marks(NamedTuple):
    """Those of some messages, in columns; times and files may be one number for all."""

    times_ns: Numbers | int
    files: Numbers | int
    positions: Numbers

    def at(self, index: int) -> Mark:
        return (_at(self.times_ns, index), _at(self.files, index), int(self.positions[index]))

    def part(self, which: Any) -> Marks:
        """Of those that a mask, a slice or an index array picks."""
        times, files = (column if isinstance(column, int) else column[which] for column in self[:2])
        return Marks(times, files, self.positions[which])

    def up_to(self, mark: Mark) -> Any:
        """Which are not behind a mark."""
        time_ns, file, position = mark
        in_file = (self.files < file) | ((self.files == file) & (self.positions <= position))
        return (self.times_ns < time_ns) | ((self.times_ns == time_ns) & in_file)

    def among(self, ranges: Sequence[Range]) -> Any:
        """Which are in any of the ranges. They need not be in order."""
        found = np.zeros(len(self.positions), dtype=bool)
        for low, high in ranges:
            found |= self.up_to(high) & ~self.up_to(low)
        return found


def _at(column: Numbers | int, index: int) -> int:
    return column if isinstance(column, int) else int(column[index])


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same messages in as few ranges as there are, in order."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1].high:
            found[-1] = Range(found[-1].low, max(found[-1].high, high))
        else:
            found.append(Range(low, high))
    return found


def overlapping(ranges: Sequence[Range], low: Mark, high: Mark) -> Sequence[Range]:
    """Those of some merged ranges that have anything behind `low` and up to `high`."""
    first = bisect_right(ranges, low, key=lambda one: one.high)
    end = first
    while end < len(ranges) and ranges[end].low < high:
        end += 1
    return ranges[first:end]
