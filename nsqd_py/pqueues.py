"""Two queues by time: runs of deferred messages, and the alarms of everything that has a deadline.

Neither does any work for what was finished in time: an alarm that is set later than before stays where it is
in the heap and is looked at again when it would have rung.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import chain

from nsqd_py.batch import Batch

# Messages low..high (not included) of a topic that wait together: (low, high, attempts so far, batch).
# The batch is given where the messages are in no log.
Run = tuple[int, int, int, Batch | None]

_HEAP_SPAN_BITS = 24  # of ns


class DeferredQueue:
    """Runs of messages by the time at which they are due.

    count  messages in them

    A heap of heaps, one for each ms or so: with 300,000 runs over 10 s each has 30, and a step of it touches memory
    that is near; taking one out is 1.5 us, of one large heap 3.
    """

    __slots__ = ("_heaps", "_keys", "_length", "count")

    def __init__(self) -> None:
        self._heaps: dict[int, list[tuple[int, Run]]] = {}
        self._keys: list[int] = []
        self._length = 0
        self.count = 0

    def push(self, due_ns: int, run: Run) -> None:
        key = due_ns >> _HEAP_SPAN_BITS
        heap = self._heaps.get(key)
        if heap is None:
            heap = self._heaps[key] = []
            heappush(self._keys, key)
        heappush(heap, (due_ns, run))
        self._length += 1
        self.count += run[1] - run[0]

    @property
    def next_due_ns(self) -> int | None:
        """When the next run is due; None when there is none."""
        return self._heaps[self._keys[0]][0][0] if self._keys else None

    def pop_due(self, now_ns: int, most: int = sys.maxsize) -> list[Run]:
        """Take out the runs that are due, in the order of their due times; no more than `most`."""
        runs: list[Run] = []
        while self._keys and len(runs) < most:
            heap = self._heaps[self._keys[0]]
            while heap and heap[0][0] <= now_ns and len(runs) < most:
                runs.append(heappop(heap)[1])
            if heap:
                break
            del self._heaps[heappop(self._keys)]
        self._length -= len(runs)
        self.count -= sum(high - low for low, high, _, _ in runs)
        return runs

    def clear(self) -> None:
        self._heaps.clear()
        self._keys.clear()
        self._length = self.count = 0

    def copy(self) -> DeferredQueue:
        """The same runs, for another thread."""
        copy = DeferredQueue()
        copy._heaps = {key: heap.copy() for key, heap in self._heaps.items()}
        copy._keys = self._keys.copy()
        copy._length, copy.count = self._length, self.count
        return copy

    def __len__(self) -> int:
        """How many runs there are."""
        return self._length

    def __iter__(self) -> Iterator[tuple[int, Run]]:
        """(due_ns, run) in no order."""
        return chain.from_iterable(self._heaps.values())


class Alarm:
    """Calls `ring(now_ns)` once its time has come. Setting it again moves it; setting it to None stops it."""

    __slots__ = ("_alarms", "_queued_ns", "_ring", "due_ns")

    def __init__(self, alarms: Alarms, ring: Callable[[int], None]) -> None:
        self._alarms = alarms
        self._ring = ring
        self._queued_ns: int | None = None
        self.due_ns: int | None = None

    def set(self, due_ns: int | None) -> None:
        self.due_ns = due_ns
        if due_ns is not None and (self._queued_ns is None or due_ns < self._queued_ns):
            self._queued_ns = due_ns
            self._alarms.push(due_ns, self)

    def set_no_later(self, due_ns: int) -> None:
        """Ring at `due_ns`, or earlier if it is set so already."""
        if self.due_ns is None or due_ns < self.due_ns:
            self.set(due_ns)

    def come_up(self, queued_ns: int, now_ns: int) -> None:
        """The heap reached an entry of this alarm: ring, or queue again when it was moved."""
        if queued_ns != self._queued_ns:
            return  # an older entry: a newer one stands in front of it
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
    """All alarms of a process, for one timer: the earliest is known, nothing is polled."""

    __slots__ = ("_heap", "_order", "on_earlier")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Alarm]] = []
        self._order = 0
        self.on_earlier: Callable[[int], None] | None = None

    def alarm(self, ring: Callable[[int], None]) -> Alarm:
        """A new alarm, not set."""
        return Alarm(self, ring)

    def push(self, due_ns: int, alarm: Alarm) -> None:
        self._order += 1
        heappush(self._heap, (due_ns, self._order, alarm))
        if self._heap[0][2] is alarm and self.on_earlier is not None:
            self.on_earlier(due_ns)

    @property
    def next_due_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def ring_due(self, now_ns: int) -> None:
        """Ring every alarm whose time has come."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            queued_ns, _, alarm = heappop(heap)
            alarm.come_up(queued_ns, now_ns)
