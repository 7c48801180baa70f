"""The state of a channel's messages by sequence number, and the order in which clients are served. Pure.

`Position` knows which messages were released to the channel, taken for delivery, requeued, deferred and finished. It
contains sequence numbers only; bodies stay in the log.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, repeat
from operator import itemgetter

from nsqd_py.clock import DeferredQueue, Run
from nsqd_py.diskqueue.ranges import Range, SeqRanges, common, count_of

# A requeued message waits behind the messages that are queued at that time, but behind at most this number: otherwise a
# retry on a channel with millions of messages on disk would take hours. In Go's nsqd --mem-queue-size limits the same
# wait; this is its default.
MOST_AHEAD = 10_000


class Position:
    """The sets of queued, deferred and finished messages. All other released messages are in flight.

    released     the sequence number after the last released message
    next_fresh   the cursor: the first message that has not been taken; the cursor jumps over the ranges in `skips`
    again        requeued runs, in the order in which they were requeued
    again_after  for each of these runs, the number that the cursor must reach before the run is delivered
    """

    __slots__ = ("_skipped", "again", "again_after", "again_count", "deferred", "finished", "next_fresh", "released", "skips")

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
        """The number of queued messages."""
        return self.released - self.next_fresh - self._skipped + self.again_count

    @property
    def fresh_count(self) -> int:
        return self.released - self.next_fresh - self._skipped

    # ---- adding messages

    def skip(self, low: int, high: int) -> None:
        """Make the cursor jump over low..high, which must not be before the cursor or another skipped range."""
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
        """The number that the cursor must reach before a message that is requeued now is delivered."""
        return min(self.released, self.next_fresh + MOST_AHEAD)

    def queue_again(self, run: Run, after: int | None = None) -> None:
        """Requeue a run behind all queued messages, or those below `after`, which must not decrease between calls."""
        self.again.append(run)
        self.again_after.append(self.end_of_queue if after is None else after)
        self.again_count += run[1] - run[0]

    def queue_due(self, now_ns: int, most: int) -> bool:
        """Requeue up to `most` deferred runs that are due; return True if there were any."""
        runs = self.deferred.pop_due(now_ns, most)
        self.again += runs
        self.again_after += repeat(self.end_of_queue, len(runs))
        self.again_count += sum(high - low for low, high, _, _ in runs)
        return bool(runs)

    # ---- taking messages

    def take_again(self, most: int) -> Run:
        """Take up to `most` messages of the first requeued run; there must be one."""
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
        """Put a taken run back, as the first one."""
        self.again.appendleft(run)
        self.again_after.appendleft(0)
        self.again_count += run[1] - run[0]

    def peek_fresh(self) -> tuple[int, int]:
        """Return the next run (low, high) at the cursor; low == high if there is none."""
        skips = self.skips
        while skips and skips[0][0] <= self.next_fresh:
            low, high = skips.popleft()
            self._skipped -= high - low
            self.next_fresh = high
        if skips:
            return self.next_fresh, min(skips[0][0], self.released)
        return self.next_fresh, self.released

    def take_fresh_below(self, end: int) -> list[tuple[int, int]]:
        """Move the cursor over all messages below `end`, and return them as runs."""
        taken: list[tuple[int, int]] = []
        while True:
            low, high = self.peek_fresh()
            high = min(high, end)
            if low >= high:
                return taken
            self.take_fresh(high - low)
            taken.append((low, high))

    def take_again_where(self, is_wanted: Callable[[Run], bool], most: int = sys.maxsize) -> list[Run]:
        """Take the matching runs out of the first `most` requeued runs."""
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

    def take_queued(self, seq: int, most: int) -> bool:
        """Take one queued message, wherever it is in the queue.

        Return False if it is not queued, or if it is behind the first `most` requeued runs.
        """
        for place, (low, high, attempts, batch) in enumerate(islice(self.again, most)):
            if low <= seq < high:
                after = self.again_after[place]
                del self.again[place], self.again_after[place]
                for rest_low, rest_high in ((seq + 1, high), (low, seq)):
                    if rest_low < rest_high:
                        self.again.insert(place, (rest_low, rest_high, attempts, batch))
                        self.again_after.insert(place, after)
                self.again_count -= 1
                return True
        return self._take_fresh_one(seq)

    def _take_fresh_one(self, seq: int) -> bool:
        """Make the cursor jump over one message; False if it is behind the cursor, or jumped over already."""
        if not self.next_fresh <= seq < self.released:
            return False
        place = bisect_right(self.skips, (seq, sys.maxsize))
        if place and self.skips[place - 1][1] > seq:
            return False
        self.skips.insert(place, (seq, seq + 1))
        self._skipped += 1
        return True

    def queued(self, most: int) -> list[Run]:
        """Return the next `most` messages in delivery order, without taking them."""
        runs: list[Run] = []
        for low, high, attempts, batch in self._in_order():
            if not most:
                break
            high = min(high, low + most)
            runs.append((low, high, attempts, batch))
            most -= high - low
        return runs

    def oldest(self, most: int) -> int | None:
        """Return the lowest queued number, or None. Only the first `most` requeued runs are compared."""
        fresh = (low for low, _ in islice(self._fresh_runs(), 1))
        return min(chain(fresh, (run[0] for run in islice(self.again, most))), default=None)

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
        """Yield the runs between the skipped ranges."""
        low = self.next_fresh
        for skip_low, skip_high in self.skips:
            if skip_low > low:
                yield low, min(skip_low, self.released)
            low = max(low, skip_high)
        if low < self.released:
            yield low, self.released

    def take_fresh(self, count: int) -> None:
        """Move the cursor over `count` messages of the run that `peek_fresh` returned."""
        self.next_fresh += count

    def empty(self) -> None:
        """Finish all released messages."""
        self.again.clear()
        self.again_after.clear()
        self.again_count = 0
        self.deferred.clear()
        self.skips.clear()
        self._skipped = 0
        self.next_fresh = self.released
        self.finished = SeqRanges(self.released)

    def seek(
        self,
        seq: int,
        not_due: Iterable[tuple[int, int, int]],
        holes: Iterable[tuple[int, int]],
        skip_below: int,
        in_flight: Iterable[Run],
    ) -> int:
        """Queue all messages from `seq` on, and finish those queued ones before `skip_below` that were never sent.

        Return how many these were. No other unfinished message is lost: deferred ones stay deferred, requeued ones and
        those of `in_flight`, which are from `seq` on, keep their attempts. `not_due` are other messages that were
        published with a delay, as (low, high, due_ns). `holes` are ranges without messages.
        """
        unsent = [run[:2] for run in self.again if not run[2]]
        skipped = _clipped([*self._fresh_runs(), *unsent], min(skip_below, seq))
        for low, high in skipped:
            self.finished.add(low, high)
        unfinished = list(self.finished.gaps(0, seq))
        fresh = common(self._fresh_runs(), unfinished)
        requeued = list(zip(self.again, self.again_after, strict=True))
        deferred = list(self.deferred)
        self.empty()
        self.finished = _all_below_but(unfinished, seq, holes)
        settled = _all_below_but(fresh, seq, holes)
        self.next_fresh = settled.floor
        for (low, high, attempts, batch), after in requeued:
            for gap_low, gap_high in self.finished.gaps(low, min(high, seq)):
                self.queue_again((gap_low, gap_high, attempts, batch), min(after, seq))
        again = [(max(low, seq), high, attempts, batch) for (low, high, attempts, batch), _ in requeued if attempts]
        for run in sorted([*again, *in_flight], key=itemgetter(0)):
            if run[1] > seq:
                self.queue_again(run, run[0])  # in the order of the log
                settled.add_missing(run[0], run[1])
        for due_ns, run in deferred:
            self.defer(due_ns, run)
            settled.add_missing(max(run[0], seq), run[1])
        for low, high, due_ns in not_due:
            for gap_low, gap_high in list(settled.gaps(max(low, seq), min(high, self.released))):
                self.defer(due_ns, (gap_low, gap_high, 0, None))
                settled.add(gap_low, gap_high)
        for low, high in [(self.next_fresh, settled.floor), *settled.islands()]:
            self.skip(low, high)
        return count_of(skipped)


def _clipped(runs: Iterable[Range], end: int) -> list[Range]:
    """Return the parts of the runs before `end`."""
    return [(low, min(high, end)) for low, high in runs if low < end]


def _all_below_but(runs: Sequence[Range], seq: int, others: Iterable[Range]) -> SeqRanges:
    """Return the numbers below `seq` that are not in these rising runs, and those in `others`, which are from it on."""
    found = SeqRanges(runs[0][0] if runs else seq)
    for (_, low), (high, _) in pairwise([*runs, (seq, seq)]):
        found.add_missing(low, high)
    for low, high in others:
        found.add(low, high)
    return found


FIRST_DELAY_NS = 1_000_000_000
LONGEST_DELAY_NS = 60_000_000_000


class UnreadableRanges:
    """The ranges of a channel's messages that could not be read at the last try.

    A range begins where reading failed, and ends where reading may succeed again. Its messages are deferred in the
    channel's position, and delivered when they can be read.
    """

    __slots__ = ("_position", "_ranges")

    def __init__(self, position: Position) -> None:
        self._position = position
        self._ranges: dict[int, tuple[int, int]] = {}  # end: (start, how often reading failed)

    def failed(self, low: int, end: int) -> int:
        """Record that low..end could not be read. Return the delay until the next try: 1 s at first, at most 60 s."""
        self._forget_finished()
        start, failures = self._ranges.get(end, (low, 0))
        self._ranges[end] = min(start, low), failures + 1
        return min(FIRST_DELAY_NS << min(failures, 10), LONGEST_DELAY_NS)

    def _forget_finished(self) -> None:
        floor = self._position.finished.floor
        for end in [end for end in self._ranges if end <= floor]:
            del self._ranges[end]

    def read(self, seq: int) -> None:
        """Remove the range of a message that was read; its other messages stay deferred until their next try."""
        for end in [end for end, (start, _) in self._ranges.items() if start <= seq < end]:
            del self._ranges[end]

    @property
    def count(self) -> int:
        """The number of deferred messages that could not be read."""
        ranges = [(start, end) for end, (start, _) in self._ranges.items()]
        if not ranges:
            return 0
        return sum(
            high - low for _, (low, high, _, _) in self._position.deferred if any(start <= low < end for start, end in ranges)
        )

    def __bool__(self) -> bool:
        return bool(self._ranges)


# The nearness of a consumer to this nsqd. Without --enable-experiment=topology-aware-consumption all are GLOBAL.
GLOBAL, REGION_LOCAL, ZONE_LOCAL = range(3)

TOPOLOGY_AWARE = "topology-aware-consumption"


def nearness(zone: str, region: str, client_zone: str, client_region: str) -> int:
    """Return the nearness of a client in this zone and region."""
    if client_zone == zone:
        return ZONE_LOCAL
    return REGION_LOCAL if client_region == region else GLOBAL


def fair_share(available: int, clients: int) -> int:
    """Return the number of messages that each of `clients` may take in one round: available / clients, rounded up."""
    return -(-available // clients)
