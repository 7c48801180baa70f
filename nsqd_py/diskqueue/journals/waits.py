"""Runs of waiting messages, packed as in a journal.

A start reads the due times and attempts of all waiting messages before it makes the queues of the channels. As tuples, or in
a dictionary, they would take ten times as much memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain, pairwise
from operator import itemgetter
from struct import Struct

from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.pqueues.deferred import Wait

_WAIT = Struct("<QQqH")
WAIT_BYTES = _WAIT.size
_MOST_ATTEMPTS = 0xFFFF
_INDEX_BITS = 40
_END: Wait = (1 << 64, 1 << 64, 0, 0)

_low_of = itemgetter(0)


class PackedWaits:
    """Runs of waiting messages as (low, high, due_ns, attempts), in the order in which they were requeued."""

    __slots__ = ("_packed",)

    def __init__(self, waits: Iterable[Wait] = ()) -> None:
        packed = bytearray()
        self._packed = packed
        for low, high, due_ns, attempts in waits:
            packed += _WAIT.pack(low, high, due_ns, min(attempts, _MOST_ATTEMPTS))

    def add(self, low: int, high: int, due_ns: int, attempts: int) -> None:
        """Add a run at the end."""
        self._packed += _WAIT.pack(low, high, due_ns, min(attempts, _MOST_ATTEMPTS))

    def add_packed(self, packed: bytes) -> None:
        """Add runs that are packed already."""
        self._packed += packed

    def clear(self) -> None:
        """Remove all runs."""
        self._packed.clear()

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._packed) // WAIT_BYTES

    def __iter__(self) -> Iterator[Wait]:
        """Yield the runs. None may be added in the meantime."""
        return _WAIT.iter_unpack(self._packed)

    def __bytes__(self) -> bytes:
        return bytes(self._packed)

    @property
    def end(self) -> int:
        """A number above all messages; 0 if there are none."""
        return max((high for _, high, _, _ in self), default=0)

    def rising(self) -> Iterator[Wait]:
        """Yield the runs in the order of their numbers."""
        return self.in_order(_low_of)

    def in_order(self, rank: Callable[[Wait], int]) -> Iterator[Wait]:
        """Yield the runs by their ranks, which must not be negative; equal ones stay in their order."""
        if len(self) < 2 or _are_rising(map(rank, self)):
            return iter(self)
        return map(self._at, _indexes_in_order(map(rank, self)))

    def latest(self) -> PackedWaits:
        """Return the last state of each message: the runs without the numbers that are in a later run as well."""
        if not self._packed or _are_disjoint(self.rising()):
            return self
        pieces = PackedWaits()
        indexes = array("Q")
        rising = _indexes_in_order(map(_low_of, self))
        for index, piece in _latest((index, self._at(index)) for index in rising):
            pieces.add(*piece)
            indexes.append(index)
        return PackedWaits(map(pieces._at, _indexes_in_order(indexes)))

    def by_number(self) -> dict[int, tuple[int, int]]:
        """Return (due_ns, attempts) by sequence number."""
        return {seq: (due_ns, attempts) for low, high, due_ns, attempts in self for seq in range(low, high)}

    def _at(self, index: int) -> Wait:
        low, high, due_ns, attempts = _WAIT.unpack_from(self._packed, index * WAIT_BYTES)
        return low, high, due_ns, attempts


def parts(waits: Iterable[Wait], parts_of: Callable[[int, int], Iterable[Range]]) -> Iterator[Wait]:
    """Yield the parts of each run that `parts_of` returns, given its numbers."""
    for low, high, due_ns, attempts in waits:
        for part_low, part_high in parts_of(low, high):
            yield part_low, part_high, due_ns, attempts


def grouped(waits: Iterable[Wait]) -> Iterator[Wait]:
    """Yield the runs; those with consecutive numbers and the same state as one."""
    low = high = due_ns = attempts = -1
    for next_low, next_high, next_due_ns, next_attempts in waits:
        if next_low == high and next_due_ns == due_ns and next_attempts == attempts:
            high = next_high
            continue
        if high > low:
            yield low, high, due_ns, attempts
        low = next_low
        high = next_high
        due_ns = next_due_ns
        attempts = next_attempts
    if high > low:
        yield low, high, due_ns, attempts


def without(waits: Iterable[Wait], others: Iterable[Wait]) -> Iterator[Wait]:
    """Yield the parts of the runs that are not in `others`. In both, the runs are rising and have no number in common."""
    rest = iter(others)
    other_low, other_high, _, _ = next(rest, _END)
    for low, high, due_ns, attempts in waits:
        while low < high:
            while other_high <= low:
                other_low, other_high, _, _ = next(rest, _END)
            if low < other_low:
                yield low, min(high, other_low), due_ns, attempts
            low = min(high, other_high)


def _are_disjoint(rising: Iterable[Wait]) -> bool:
    """True if each run begins behind the end of the one before; False also if a run is empty."""
    end = 0
    for low, high, _, _ in rising:
        if not end <= low < high:
            return False
        end = high
    return True


def _are_rising(numbers: Iterable[int]) -> bool:
    return all(before <= number for before, number in pairwise(numbers))


def _indexes_in_order(numbers: Iterable[int]) -> Iterator[int]:
    """Yield the indexes of these numbers in the order of the numbers, equal ones in the order of their indexes."""
    # Less memory than pairs.
    keys = sorted([number << _INDEX_BITS | index for index, number in enumerate(numbers)])
    return (key & ((1 << _INDEX_BITS) - 1) for key in keys)


def _latest(runs: Iterable[tuple[int, Wait]]) -> Iterator[tuple[int, Wait]]:
    """Yield the part of each run in which no run with a higher index has the same numbers, in the order of the numbers.

    `runs` are pairs of a index and a run, in the order in which the runs begin.
    """
    # A heap of those that begin before `reached`; the highest index comes first.
    open_runs: list[tuple[int, Wait]] = []
    reached = 0
    for index, run in chain(runs, [(0, _END)]):
        while open_runs:
            order, (_, high, due_ns, attempts) = open_runs[0]
            if high <= reached:
                heappop(open_runs)
                continue
            if reached == run[0]:
                break
            until = min(high, run[0])
            yield -order, (reached, until, due_ns, attempts)
            reached = until
        reached = run[0]
        heappush(open_runs, (-index, run))
