"""Deferred messages, ordered by the time at which they are due."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Any

from nsqd_py.protocol.batch import Batch

# Messages low..high (not included) of a topic in one state: (low, high, attempts so far, batch).
# The batch is set if the messages are in no log.
Run = tuple[int, int, int, Batch | None]

# The same in a journal: (low, high, due time, attempts). `queued_after` encodes where in the queue due messages are.
Wait = tuple[int, int, int, int]

_Deferred = tuple[int, int, int, int, Batch | None]  # due time, and a run


def queued_after(seq: int) -> int:
    """Return the due time that encodes `queued behind all messages below seq`."""
    return -1 - seq


def message_count(runs: Iterable[Run]) -> int:
    """Return the number of messages in these runs."""
    return sum(run[1] - run[0] for run in runs)


class DeferredQueue:
    """Runs of messages by due time. Each takes 190 bytes, of which 80 are one tuple.

    count  number of messages in all runs
    """

    __slots__ = ("_heap", "count")

    def __init__(self) -> None:
        self._heap: list[_Deferred] = []
        self.count = 0

    def push(self, due_ns: int, run: Run) -> None:
        heappush(self._heap, (due_ns, *run))
        self.count += run[1] - run[0]

    @property
    def next_due_ns(self) -> int | None:
        """The due time of the next run; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ns: int, most: int = sys.maxsize) -> list[Run]:
        """Remove and return at most `most` runs that are due, in the order of their due times."""
        heap = self._heap
        runs: list[Run] = []
        while heap and heap[0][0] <= now_ns and len(runs) < most:
            runs.append(heappop(heap)[1:])
        self.count -= message_count(runs)
        return runs

    def first(self, most: int) -> list[tuple[int, Run]]:
        """Return (due_ns, run) of the next runs, which hold up to `most` messages, without removing them."""
        found = []
        for due_ns, low, high, attempts, batch in _ascending(self._heap):
            if most <= 0:
                break
            found.append((due_ns, (low, min(high, low + most), attempts, batch)))
            most -= high - low
        return found

    def clear(self) -> None:
        self._heap.clear()
        self.count = 0

    def copy(self) -> DeferredQueue:
        """Return a copy for another thread."""
        copy = DeferredQueue()
        copy._heap = self._heap.copy()
        copy.count = self.count
        return copy

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._heap)

    def __iter__(self) -> Iterator[tuple[int, Run]]:
        """Yield (due_ns, run) in no order."""
        return ((entry[0], entry[1:]) for entry in self._heap)


def _ascending(heap: list[Any]) -> Iterator[Any]:
    """Yield the items of a heap in ascending order without changing it. The first n items take O(n log n)."""
    candidates = [(heap[0], 0)] if heap else []
    while candidates:
        item, index = heappop(candidates)
        yield item
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heappush(candidates, (heap[child], child))
