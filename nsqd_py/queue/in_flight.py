"""What one client has in flight on its channel, and when it times out.

All messages of one delivery share a `Delivery`, so a message costs a table entry and nothing else. Clients
have one time-out each, and a table keeps its entries in the order of delivery: the first one is the next to
time out, and no heap is needed. A message that was touched moves to a second table with a heap of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import repeat
from operator import itemgetter
from typing import Any

from nsqd_py.batch import Batch

_sequence_number = itemgetter(0)
_delivery_of = itemgetter(1)
_NOTHING = repeat(None)


class Delivery:
    """Messages of one batch that went to one client at one time.

    batch         the batch, where it is in no log; else None: a message in flight would keep all of it in memory
    timestamp_ns  when they were published
    attempts      how often they were tried, this time included
    delivered_ns  when they were sent, and
    deadline_ns   when they time out, both on the clock of the alarms
    """

    __slots__ = ("attempts", "batch", "deadline_ns", "delivered_ns", "timestamp_ns")

    def __init__(
        self, batch: Batch | None, timestamp_ns: int, attempts: int, delivered_ns: int, deadline_ns: int
    ) -> None:
        self.batch = batch
        self.timestamp_ns = timestamp_ns
        self.attempts = attempts
        self.delivered_ns = delivered_ns
        self.deadline_ns = deadline_ns

    def until(self, deadline_ns: int) -> Delivery:
        """Return the same delivery with another deadline."""
        return Delivery(self.batch, self.timestamp_ns, self.attempts, self.delivered_ns, deadline_ns)


Entry = tuple[int, Delivery]  # sequence number, delivery


class InFlightTable:
    """Messages by id that a client has and did not finish, requeue or let time out."""

    __slots__ = ("_touch_heap", "_touched", "table")

    def __init__(self) -> None:
        self.table: dict[bytes, Entry] = {}
        self._touched: dict[bytes, Entry] = {}
        self._touch_heap: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self.table) + len(self._touched)

    def __contains__(self, message_id: bytes) -> bool:
        return message_id in self.table or message_id in self._touched

    def add(self, ids: list[bytes], first_seq: int, delivery: Delivery) -> bool:
        """Messages with consecutive sequence numbers went out: 0.08 us each.

        False when one of these ids was here already: which message that was is forgotten.
        """
        table = self.table
        expected = len(table) + len(ids)
        if len(ids) == 1:  # 0.1 us, the way of many takes 0.9
            table[ids[0]] = (first_seq, delivery)
            return len(table) == expected
        table.update(zip(ids, zip(range(first_seq, first_seq + len(ids)), repeat(delivery)), strict=False))
        return len(table) == expected

    def add_each(self, ids: list[bytes], entries: list[Entry]) -> bool:
        """Likewise, for messages each of which has a delivery to itself."""
        table = self.table
        expected = len(table) + len(ids)
        table.update(zip(ids, entries, strict=True))
        return len(table) == expected

    def finish(self, ids: list[bytes]) -> tuple[list[int], list[bytes]]:
        """Take messages out: the sequence numbers of those that were here, the ids of those that were not."""
        table = self.table
        if len(ids) == 1 and (entry := table.pop(ids[0], None)) is not None:  # 0.2 us, the way of many takes 0.7
            return [entry[0]], []
        expected = len(table) - len(ids)
        entries: list[Any] = list(map(table.pop, ids, _NOTHING))
        if len(table) == expected:
            return list(map(_sequence_number, entries)), []
        finished = []
        missing = []
        for message_id, entry in zip(ids, entries, strict=True):
            found = entry if entry is not None else self._touched.pop(message_id, None)
            if found is not None:
                finished.append(found[0])
            else:
                missing.append(message_id)
        return finished, missing

    def deliveries(self, ids: list[bytes]) -> Counter[Delivery]:
        """With which deliveries these messages came, as far as they are here, and how many with each: 0.15 us each."""
        wanted = set(ids)
        entries: list[Any] = list(map(self.table.get, wanted))
        if not all(entries):
            touched = map(self._touched.get, wanted)
            entries = [entry for entry in (*entries, *touched) if entry is not None]
        return Counter(map(_delivery_of, entries))

    def pop(self, message_id: bytes) -> Entry | None:
        """Take one message out."""
        entry = self.table.pop(message_id, None)
        return entry if entry is not None else self._touched.pop(message_id, None)

    def touch(self, message_id: bytes, now_ns: int, timeout_ns: int, max_timeout_ns: int) -> bool:
        """Start its time-out anew, but never past `max_timeout_ns` after its delivery. False: not in flight."""
        entry = self.pop(message_id)
        if entry is None:
            return False
        sequence, old = entry
        deadline_ns = min(now_ns + timeout_ns, old.delivered_ns + max_timeout_ns)
        self._touched[message_id] = (sequence, old.until(deadline_ns))
        heappush(self._touch_heap, (deadline_ns, message_id))
        if len(self._touch_heap) > 2 * len(self._touched) + 64:
            self._touch_heap = [(delivery.deadline_ns, i) for i, (_, delivery) in self._touched.items()]
            heapify(self._touch_heap)
        return True

    @property
    def next_deadline_ns(self) -> int | None:
        """When the next message may time out; None when nothing is in flight."""
        first = next(iter(self.table.values()), None)
        deadline_ns = first[1].deadline_ns if first is not None else None
        if self._touch_heap and (deadline_ns is None or self._touch_heap[0][0] < deadline_ns):
            return self._touch_heap[0][0]
        return deadline_ns

    def expire(self, now_ns: int) -> list[Entry]:
        """Take out everything that timed out."""
        expired_ids = []
        for message_id, entry in self.table.items():
            if entry[1].deadline_ns > now_ns:
                break
            expired_ids.append(message_id)
        expired = list(map(self.table.pop, expired_ids))
        heap = self._touch_heap
        while heap and heap[0][0] <= now_ns:
            deadline_ns, message_id = heappop(heap)
            touched = self._touched.get(message_id)
            if touched is not None and touched[1].deadline_ns == deadline_ns:
                expired.append(self._touched.pop(message_id))
        return expired

    def entries(self) -> Iterable[Entry]:
        yield from self.table.values()
        yield from self._touched.values()

    def clear(self) -> None:
        self.table.clear()
        self._touched.clear()
        self._touch_heap.clear()
