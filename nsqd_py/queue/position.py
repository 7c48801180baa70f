"""Which ready client gets how many messages, and where a channel stands in its topic.

`Position` is the pure heart of a channel: what was released to it, how far it has been handed out, what waits
to be handed out again, what is deferred, what is finished. It knows numbers only; bodies stay in the log.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Protocol, TypeVar

from nsqd_py.diskqueue.ranges import SeqRanges
from nsqd_py.pqueues import DeferredQueue, Run

# A message that comes back waits behind the messages that are queued at that time, but behind no more than this: a
# retry on a channel with millions of messages on disk would take hours. It is Go's default of --mem-queue-size, which
# bounds the same wait there.
MOST_AHEAD = 10_000


class Position:
    """At any moment each released message is in one of: queued, in flight (elsewhere), deferred, finished.

    released     the sequence number after the last message that the channel may see
    next_fresh   the first that the cursor has not passed; those in `skips` are not for the cursor
    again        runs that are queued once more, in the order in which they came back
    again_after  for each of these runs, the number that the cursor has to reach before the run is handed out
    """

    __slots__ = (
        "_skipped", "again", "again_after", "again_count", "deferred", "finished", "next_fresh", "released", "skips",
    )  # fmt: skip

    def __init__(self, start: int, released: int) -> None:
        self.finished = SeqRanges(start)
        self.next_fresh = start
        self.released = released
        self.again: deque[Run] = deque()
        self.again_after: deque[int] = deque()
        self.again_count = 0
        self.deferred = DeferredQueue()
        self.skips: deque[tuple[int, int]] = deque()
        self._skipped = 0

    @property
    def depth(self) -> int:
        """Messages that could be delivered now."""
        return self.released - self.next_fresh - self._skipped + self.again_count

    @property
    def fresh_count(self) -> int:
        return self.released - self.next_fresh - self._skipped

    # ---- messages come

    def skip(self, low: int, high: int) -> None:
        """Keep the cursor from `low` to `high`, which lie at or behind its place, and behind all other skips."""
        low = max(low, self.next_fresh)
        if low >= high:
            return
        self._skipped += high - low
        if self.skips and self.skips[-1][1] == low:
            low = self.skips.pop()[0]
        self.skips.append((low, high))

    def defer(self, due_ns: int, run: Run) -> None:
        self.deferred.push(due_ns, run)

    @property
    def end_of_queue(self) -> int:
        """The number that the cursor has to reach before a message that comes back now is handed out."""
        return min(self.released, self.next_fresh + MOST_AHEAD)

    def queue_again(self, run: Run, after: int | None = None) -> None:
        """Queue a run behind what waits, or behind the messages below `after`; later calls give no smaller one."""
        self.again.append(run)
        self.again_after.append(self.end_of_queue if after is None else after)
        self.again_count += run[1] - run[0]

    def queue_due(self, now_ns: int, most: int) -> bool:
        """Queue up to `most` runs of what was deferred and is due; True when there was something."""
        runs = self.deferred.pop_due(now_ns, most)
        self.again += runs
        self.again_after += repeat(self.end_of_queue, len(runs))
        self.again_count += sum(high - low for low, high, _, _ in runs)
        return bool(runs)

    # ---- messages go

    def take_again(self, most: int) -> Run:
        """Hand out up to `most` messages of the oldest run that is queued again; there must be one."""
        low, high, attempts, batch = self.again[0]
        if high - low > most:
            high = low + most
            self.again[0] = (high, self.again[0][1], attempts, batch)
        else:
            self.again.popleft()
            self.again_after.popleft()
        self.again_count -= high - low
        return low, high, attempts, batch

    def put_back(self, run: Run) -> None:
        """What was taken could not be sent: it is the oldest again."""
        self.again.appendleft(run)
        self.again_after.appendleft(0)
        self.again_count += run[1] - run[0]

    def peek_fresh(self) -> tuple[int, int]:
        """The next run for the cursor as (low, high); empty (low == high) when there is none."""
        skips = self.skips
        while skips and skips[0][0] <= self.next_fresh:
            low, high = skips.popleft()
            self._skipped -= high - low
            self.next_fresh = high
        if skips:
            return self.next_fresh, min(skips[0][0], self.released)
        return self.next_fresh, self.released

    def take_fresh_below(self, end: int) -> list[tuple[int, int]]:
        """The cursor passes all that it has below `end`; the runs that those were."""
        taken: list[tuple[int, int]] = []
        while True:
            low, high = self.peek_fresh()
            high = min(high, end)
            if low >= high:
                return taken
            self.take_fresh(high - low)
            taken.append((low, high))

    def take_again_where(self, is_wanted: Callable[[Run], bool], most: int = sys.maxsize) -> list[Run]:
        """Take those runs out of the first `most` that are queued again."""
        taken: list[Run] = []
        kept: list[tuple[Run, int]] = []
        for _ in range(min(most, len(self.again))):
            run, after = self.again.popleft(), self.again_after.popleft()
            if is_wanted(run):
                taken.append(run)
            else:
                kept.append((run, after))
        self.again.extendleft(run for run, _ in reversed(kept))
        self.again_after.extendleft(after for _, after in reversed(kept))
        self.again_count -= sum(high - low for low, high, _, _ in taken)
        return taken

    def queued(self, most: int) -> list[Run]:
        """The next `most` messages in the order in which they would be handed out; they stay."""
        runs: list[Run] = []
        for low, high, attempts, batch in self._in_order():
            if not most:
                break
            high = min(high, low + most)
            runs.append((low, high, attempts, batch))
            most -= high - low
        return runs

    def _in_order(self) -> Iterator[Run]:
        again = iter(zip(self.again, self.again_after, strict=True))
        next_again = next(again, None)
        for low, high in self._fresh_runs():
            while next_again is not None and next_again[1] < high:
                if next_again[1] > low:
                    yield low, next_again[1], 0, None
                    low = next_again[1]
                yield next_again[0]
                next_again = next(again, None)
            yield low, high, 0, None
        while next_again is not None:
            yield next_again[0]
            next_again = next(again, None)

    def _fresh_runs(self) -> Iterator[tuple[int, int]]:
        """What is between the skips."""
        low = self.next_fresh
        for skip_low, skip_high in self.skips:
            if skip_low > low:
                yield low, min(skip_low, self.released)
            low = max(low, skip_high)
        if low < self.released:
            yield low, self.released

    def take_fresh(self, count: int) -> None:
        """The cursor passes `count` messages of what `peek_fresh` gave."""
        self.next_fresh += count

    def empty(self) -> None:
        """Everything that was released is finished."""
        self.again.clear()
        self.again_after.clear()
        self.again_count = 0
        self.deferred.clear()
        self.skips.clear()
        self._skipped = 0
        self.next_fresh = self.released
        self.finished = SeqRanges(self.released)

    def seek(self, seq: int, not_due: Iterable[tuple[int, int, int]], holes: Iterable[tuple[int, int]]) -> None:
        """Everything from `seq` on is fresh, all before it finished.

        What is deferred from there on stays so; `not_due` are others that were published to be delivered later, as
        (low, high, due_ns). In `holes` there are no messages.
        """
        kept = [(due_ns, run) for due_ns, run in self.deferred if run[1] > seq]
        self.empty()
        self.next_fresh = seq
        self.finished = SeqRanges(seq, holes)
        settled = SeqRanges(seq, holes)
        for due_ns, (low, high, attempts, batch) in kept:
            self.defer(due_ns, (max(low, seq), high, attempts, batch))
            settled.add_missing(max(low, seq), high)
        for low, high, due_ns in not_due:
            for gap_low, gap_high in list(settled.gaps(max(low, seq), min(high, self.released))):
                self.defer(due_ns, (gap_low, gap_high, 0, None))
                settled.add(gap_low, gap_high)
        for low, high in [(seq, settled.floor), *settled.islands()]:
            self.skip(low, high)


# How near a consumer is to this nsqd; where that does not count, all are GLOBAL.
GLOBAL, REGION_LOCAL, ZONE_LOCAL = range(3)

TOPOLOGY_AWARE = "topology-aware-consumption"


def nearness(zone: str, region: str, client_zone: str, client_region: str) -> int:
    """How near a client is that says it is in this zone and region."""
    if client_zone == zone:
        return ZONE_LOCAL
    return REGION_LOCAL if client_region == region else GLOBAL


class Placed(Protocol):
    """A client with a place."""

    nearness: int


AnyPlaced = TypeVar("AnyPlaced", bound=Placed)


def by_nearness(clients: Iterable[AnyPlaced]) -> list[deque[AnyPlaced]]:
    """The clients in rows, the nearest first, each row in the order in which they came."""
    rows: dict[int, deque[AnyPlaced]] = {ZONE_LOCAL: deque(), REGION_LOCAL: deque(), GLOBAL: deque()}
    for client in clients:
        rows[client.nearness].append(client)
    return [row for row in rows.values() if row]


def fair_share(available: int, clients: int) -> int:
    """How many messages each of `clients` may take in one round: all the same, together no fewer than there are."""
    return -(-available // clients)
