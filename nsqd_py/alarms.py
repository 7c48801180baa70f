"""The two queues ordered by time: deferred messages, and alarms for everything that has a deadline.

Moving an alarm to a later time takes no work in the heap: it keeps its place there, and is requeued when that place
comes up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from nsqd_py.batch import Batch

# Messages low..high (not included) of a topic in one state: (low, high, attempts so far, batch).
# The batch is set if the messages are in no log.
Run = tuple[int, int, int, Batch | None]

# The same in a journal: (low, high, due time, attempts). `queued_after` encodes the place of messages that are due.
Wait = tuple[int, int, int, int]

_Deferred = tuple[int, int, int, int, Batch | None]  # due time, and a run

_MOST_OUTDATED = 1000


def queued_after(seq: int) -> int:
    """Return the due time that encodes `queued behind all messages below seq`."""
    return -1 - seq


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
        self.count -= sum(high - low for low, high, _, _ in runs)
        return runs

    def first(self, most: int) -> list[tuple[int, Run]]:
        """Return (due_ns, run) of the next runs, which hold up to `most` messages, without removing them."""
        found: list[tuple[int, Run]] = []
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
        copy._heap, copy.count = self._heap.copy(), self.count
        return copy

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._heap)

    def __iter__(self) -> Iterator[tuple[int, Run]]:
        """Yield (due_ns, run) in no order."""
        return ((due_ns, (low, high, attempts, batch)) for due_ns, low, high, attempts, batch in self._heap)


def _ascending(heap: list[Any]) -> Iterator[Any]:
    """Yield the items of a heap in ascending order without changing it. The first n items take O(n log n)."""
    candidates = [(heap[0], 0)] if heap else []
    while candidates:
        item, place = heappop(candidates)
        yield item
        for child in (2 * place + 1, 2 * place + 2):
            if child < len(heap):
                heappush(candidates, (heap[child], child))


class Alarm:
    """Calls `ring(now_ns)` once at its time. Setting it again moves it; setting it to None stops it."""

    __slots__ = ("_alarms", "_queued_ns", "_ring", "due_ns")

    def __init__(self, alarms: Alarms, ring: Callable[[int], None]) -> None:
        self._alarms = alarms
        self._ring = ring
        self._queued_ns: int | None = None
        self.due_ns: int | None = None

    def set(self, due_ns: int | None) -> None:
        self.due_ns = due_ns
        if due_ns is not None and (self._queued_ns is None or due_ns < self._queued_ns):
            was_queued, self._queued_ns = self._queued_ns is not None, due_ns
            self._alarms.push(due_ns, self)
            if was_queued:
                self._alarms.count_outdated()

    def close(self) -> None:
        """Stop the alarm for ever, and drop `ring`, which refers to the alarm's owner.

        The owner is then freed at once. Otherwise the heap would keep it until the alarm's time, and then it would be a
        reference cycle, which takes memory until the collector runs.
        """
        self.due_ns = None
        self._ring = _ignore
        if self._queued_ns is not None:
            self._queued_ns = None
            self._alarms.count_outdated()

    def set_no_later(self, due_ns: int) -> None:
        """Ring at `due_ns`, or earlier if it is already set earlier."""
        if self.due_ns is None or due_ns < self.due_ns:
            self.set(due_ns)

    def is_queued_at(self, queued_ns: int) -> bool:
        """True for the entry of the heap that counts; False for an outdated one, which an earlier one has replaced."""
        return queued_ns == self._queued_ns

    def come_up(self, now_ns: int) -> None:
        """Ring, or queue again if the alarm was moved; called when the entry of this alarm comes up in the heap."""
        self._queued_ns = None
        due_ns = self.due_ns
        if due_ns is None:
            return
        if due_ns > now_ns:
            self.set(due_ns)
            return
        self.due_ns = None
        self._ring(now_ns)


class Alarms:
    """All alarms of a process. One timer, set to the earliest, serves them all."""

    __slots__ = ("_heap", "_order", "_outdated", "on_earlier")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Alarm]] = []
        self._order = 0
        self._outdated = 0
        self.on_earlier: Callable[[int], None] | None = None

    def alarm(self, ring: Callable[[int], None]) -> Alarm:
        """Return a new alarm that is not set."""
        return Alarm(self, ring)

    def push(self, due_ns: int, alarm: Alarm) -> None:
        self._order += 1
        heappush(self._heap, (due_ns, self._order, alarm))
        if self._heap[0][2] is alarm and self.on_earlier is not None:
            self.on_earlier(due_ns)

    def count_outdated(self) -> None:
        """Count one more entry that rings nothing. When most are such, remove them: their times may be far away."""
        self._outdated += 1
        if self._outdated > _MOST_OUTDATED and self._outdated > len(self._heap) // 2:
            self._heap[:] = [entry for entry in self._heap if entry[2].is_queued_at(entry[0])]
            heapify(self._heap)
            self._outdated = 0

    @property
    def next_due_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def ring_due(self, now_ns: int) -> None:
        """Ring every alarm that is due."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            queued_ns, _, alarm = heappop(heap)
            if alarm.is_queued_at(queued_ns):
                alarm.come_up(now_ns)
            else:
                self._outdated -= 1


def _ignore(_now_ns: int) -> None:
    pass
