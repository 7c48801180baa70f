"""Alarms: one for everything that has a deadline, ordered by time.

Moving an alarm to a later time takes no work in the heap: it keeps its entry there, and is queued again when that entry
comes up.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

_MOST_OUTDATED = 1000

Clock = Callable[[], int]  # returns ns


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
            was_queued = self._queued_ns is not None
            self._queued_ns = due_ns
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
        while self.ring_next(now_ns):
            pass

    def ring_next(self, now_ns: int) -> bool:
        """Ring the first alarm that is due. Return False if none is."""
        heap = self._heap
        if not heap or heap[0][0] > now_ns:
            return False
        queued_ns, _, alarm = heappop(heap)
        if alarm.is_queued_at(queued_ns):
            alarm.come_up(now_ns)
        else:
            self._outdated -= 1
        return True


def _ignore(_now_ns: int) -> None:
    pass
