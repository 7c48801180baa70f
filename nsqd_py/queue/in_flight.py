"""The in-flight messages of one client, and when they time out.

All messages of one delivery share a `Delivery`, so a message costs only a table entry. Each client has one message
timeout, and a table keeps its entries in the order of delivery: the first entry is the next to time out, and no heap
is needed. A touched message moves to a second table, which has a heap.

Messages may share an id: dead letters of several channels, or a dead letter that was moved twice after a crash. A
consumer answers by id, so it receives only one of them at a time.

The time from publish to FIN is estimated with a DDSketch (Masson, Rim and Lee, VLDB 2019), with a relative error of 1 % for
any distribution. A window has two sketches, each for half of its time: when the newer is complete, the older is dropped, as
in Go's nsqd.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from nsqd_py.batch import Batch

if TYPE_CHECKING:
    from ddsketch import DDSketch

_sequence_number = itemgetter(0)
_delivery_of = itemgetter(1)
_NOTHING = repeat(None)


class Delivery:
    """Messages of one batch that were sent to one client at one time.

    batch         the batch if it is in no log; else None, because one message in flight would keep it all in memory
    timestamp_ns  publish time
    attempts      the number of attempts, including this one
    delivered_ns  send time, on the clock of the alarms
    deadline_ns   when they time out, on the same clock
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
    """The in-flight messages of a client, by id."""

    __slots__ = ("_newest", "_touch_heap", "_touched", "table")

    def __init__(self) -> None:
        self.table: dict[bytes, Entry] = {}
        self._newest = b""  # the highest id so far: messages that come for the first time need no search
        self._touched: dict[bytes, Entry] = {}
        self._touch_heap: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self.table) + len(self._touched)

    def __contains__(self, message_id: bytes) -> bool:
        return message_id in self.table or message_id in self._touched

    def add(self, ids: list[bytes], first_seq: int, delivery: Delivery) -> bool:
        """Add messages with consecutive sequence numbers: 0.08 us each.

        Return False if one of these ids is in flight already; then none is added.
        """
        table = self.table
        newest = self._newest
        if ids[0] <= newest and not (table.keys().isdisjoint(ids) and self._touched.keys().isdisjoint(ids)):
            return False
        if ids[-1] > newest:
            self._newest = ids[-1]
        if len(ids) == 1:  # 0.1 us instead of 0.9
            table[ids[0]] = (first_seq, delivery)
        else:
            table.update(
                zip(ids, zip(range(first_seq, first_seq + len(ids)), repeat(delivery)), strict=False)
            )
        return True

    def finish(self, ids: list[bytes]) -> tuple[list[int], list[bytes]]:
        """Remove messages. Return the sequence numbers of those found, and the ids of those not found."""
        table = self.table
        if len(ids) == 1 and (entry := table.pop(ids[0], None)) is not None:  # 0.2 us instead of 0.7
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
        """Count these messages by delivery; ids that are not in flight are ignored: 0.15 us each."""
        wanted = set(ids)
        entries: list[Any] = list(map(self.table.get, wanted))
        if not all(entries):
            touched = map(self._touched.get, wanted)
            entries = [entry for entry in (*entries, *touched) if entry is not None]
        return Counter(map(_delivery_of, entries))

    def pop(self, message_id: bytes) -> Entry | None:
        """Remove one message and return its entry, or None."""
        entry = self.table.pop(message_id, None)
        return entry if entry is not None else self._touched.pop(message_id, None)

    def touch(self, message_id: bytes, now_ns: int, timeout_ns: int, max_timeout_ns: int) -> bool:
        """Restart its timeout, up to `max_timeout_ns` after its delivery. Return False if it is not in flight."""
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
        """The earliest time at which a message may time out, or None if none is in flight."""
        first = next(iter(self.table.values()), None)
        deadline_ns = first[1].deadline_ns if first is not None else None
        if self._touch_heap and (deadline_ns is None or self._touch_heap[0][0] < deadline_ns):
            return self._touch_heap[0][0]
        return deadline_ns

    def expire(self, now_ns: int) -> list[Entry]:
        """Remove and return all messages that have timed out."""
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

    def forget_from(self, seq: int) -> None:
        """Remove the messages with numbers from `seq` on."""
        for table in (self.table, self._touched):
            for message_id in [message_id for message_id, (number, _) in table.items() if number >= seq]:
                del table[message_id]


RELATIVE_ACCURACY = 0.01


def _sketch() -> DDSketch:
    from ddsketch import DDSketch  # the extra `latency` brings it

    return DDSketch(RELATIVE_ACCURACY)


class LatencyWindow:
    """The latencies of the last `window_ns`, or of at least half of it. Times in ns."""

    __slots__ = ("_began_ns", "_half_ns", "_newer", "_older")

    def __init__(self, window_ns: int, now_ns: int) -> None:
        self._half_ns = max(1, window_ns // 2)
        self._began_ns = now_ns
        self._newer = _sketch()
        self._older = _sketch()

    def add(self, latency_ns: int, count: int, now_ns: int) -> None:
        """Add `count` messages with this latency: 1 us for any count."""
        self._move(now_ns)
        self._newer.add(latency_ns, count)

    def pour_into(self, sketch: DDSketch, now_ns: int) -> None:
        """Add the latencies of the window to a sketch."""
        self._move(now_ns)
        sketch.merge(self._older)
        sketch.merge(self._newer)

    def _move(self, now_ns: int) -> None:
        halves = (now_ns - self._began_ns) // self._half_ns
        if halves <= 0:
            return
        self._older = self._newer if halves == 1 else _sketch()
        self._newer = _sketch()
        self._began_ns += halves * self._half_ns


class LatencyMeter:
    """The latencies of one channel.

    `clock` moves the window; `wall_clock` is the clock of the messages' timestamps.
    """

    def __init__(
        self,
        percentiles: Sequence[float],
        window_ns: int,
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
    ) -> None:
        self._percentiles = percentiles
        self._clock = clock
        self._wall_clock = wall_clock
        self._window = LatencyWindow(window_ns, clock())

    def finished(self, deliveries: Mapping[Delivery, int]) -> None:
        """Add finished messages, counted by delivery."""
        finished_ns = self._wall_clock()
        now_ns = self._clock()
        for delivery, count in deliveries.items():
            # The wall clock may have been set back since.
            self._window.add(max(0, finished_ns - delivery.timestamp_ns), count, now_ns)

    def statistics(self, others: Iterable[LatencyMeter] = ()) -> dict[str, Any]:
        """Return the number of messages and the percentiles of their latency in ns, merged with those of `others`."""
        now_ns = self._clock()
        sketch = _sketch()
        for meter in (self, *others):
            meter._window.pour_into(sketch, now_ns)
        return {
            "count": int(sketch.count),
            "percentiles": [
                {
                    "quantile": 1 if quantile == 1 else quantile,  # not 1.0, as in Go's JSON
                    "value": round(sketch.get_quantile_value(quantile) or 0.0),
                }
                for quantile in self._percentiles
            ],
        }
