"""The state of a channel's messages, by sequence number.

A `Position` knows which messages were released to the channel, taken for delivery, requeued, deferred and finished. It
contains sequence numbers only; bodies stay in the log.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, repeat
from operator import itemgetter

from nsqd_py.diskqueue.journals.ranges import Range, SeqRanges, common, count_of, minus, ranges_of, union
from nsqd_py.pqueues.deferred import DeferredQueue, Run, Wait, message_count, queued_after

# A requeued message waits behind the messages that are queued at that time, but behind at most this number: otherwise a
# retry on a channel with millions of messages on disk would take hours. In Go's nsqd --mem-queue-size limits the same
# wait; this is its default.
MOST_AHEAD = 10_000


class Position:
    """The sets of queued, deferred, finished and lost messages. All other released messages are in flight.

    Lost messages are neither finished nor in the log. They are not delivered, but no journal says that they are finished:
    whoever has a better copy can give them back, and then they are unfinished again.

    released        the sequence number after the last released message
    cursor          the first message that has not been taken; it jumps over the ranges in `skips`
    requeued        requeued runs, in the order of delivery
    requeued_after  for each of these runs, the number that the cursor must reach before the run is delivered; it never falls
    lost_waits      the attempts and due times that lost messages had
    """

    __slots__ = (
        "_skipped",
        "requeued",
        "requeued_after",
        "requeued_count",
        "deferred",
        "finished",
        "lost",
        "lost_waits",
        "cursor",
        "released",
        "skips",
    )

    def __init__(self, start: int, released: int) -> None:
        self.finished = SeqRanges(start)
        self.lost = SeqRanges()
        self.lost_waits: list[Wait] = []
        self.cursor = start
        self.released = released
        self.requeued: deque[Run] = deque()
        self.requeued_after: deque[int] = deque()
        self.requeued_count = 0
        self.deferred = DeferredQueue()
        self.skips: deque[Range] = deque()
        self._skipped = 0

    @property
    def depth(self) -> int:
        """The number of queued messages."""
        return self.released - self.cursor - self._skipped + self.requeued_count

    @property
    def new_count(self) -> int:
        return self.released - self.cursor - self._skipped

    # ---- adding messages

    def skip(self, low: int, high: int) -> None:
        """Make the cursor jump over low..high, which must not be before the cursor or another skipped range."""
        low = max(low, self.cursor)
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
        return min(self.released, self.cursor + MOST_AHEAD)

    def requeue(self, run: Run, after: int | None = None) -> None:
        """Requeue a run behind all queued messages, or those below `after`."""
        if after is None:
            after = self.end_of_queue
        self.requeued.append(run)
        self.requeued_after.append(after)
        self.requeued_count += run[1] - run[0]
        self._move_forward(1)

    def queue_due(self, now_ns: int, most: int) -> bool:
        """Requeue up to `most` deferred runs that are due; return True if there were any."""
        runs = self.deferred.pop_due(now_ns, most)
        self.requeued += runs
        self.requeued_after += repeat(self.end_of_queue, len(runs))
        self.requeued_count += message_count(runs)
        self._move_forward(len(runs))
        return bool(runs)

    def _move_forward(self, count: int) -> None:
        """Move the last `count` requeued runs before those that a seek has queued further back in the log."""
        requeued = self.requeued
        after = self.requeued_after
        if count < len(after) and after[-1 - count] > after[-1]:
            index = bisect_right(after, after[-1], 0, len(after) - count)
            for _ in range(count):
                requeued.insert(index, requeued.pop())
                after.insert(index, after.pop())

    # ---- lost messages

    def lose(self, low: int, high: int, attempts: int = 0) -> None:
        """Count messages as lost that were taken for delivery, and are not in the log."""
        self.lost.add_missing(low, high)
        if attempts:
            self.lost_waits.append((low, high, queued_after(0), attempts))

    @property
    def has_lost(self) -> bool:
        return bool(self.lost.floor or self.lost.island_count)

    def is_settled(self, low: int, high: int) -> bool:
        """True if all of these messages are finished or lost: they are not needed in the log."""
        if self.finished.covers(low, high):
            return True
        return self.has_lost and next(self.unsettled(low, high), None) is None

    def unsettled(self, low: int, high: int) -> Iterator[Range]:
        """Yield those of low..high (not included) that are neither finished nor lost, in rising order."""
        for gap_low, gap_high in self.finished.gaps(low, high):
            yield from self.lost.gaps(gap_low, gap_high)

    @property
    def settled_floor(self) -> int:
        """The number below which all messages are finished or lost."""
        if not self.has_lost:
            return self.finished.floor
        low, _ = next(self.unsettled(self.finished.floor, self.released), (self.released, 0))
        return low

    def forget_lost(self, ranges: Iterable[Range]) -> list[Range]:
        """Take messages out of the lost ones, and return which of them were lost. They must get another state."""
        found = common(ranges, ranges_of(self.lost))
        left = minus(ranges_of(self.lost), found)
        self.lost = SeqRanges(0, left)
        self.lost_waits = [
            (left_low, left_high, due_ns, attempts)
            for low, high, due_ns, attempts in self.lost_waits
            for left_low, left_high in self.lost.parts(low, high)
        ]
        return found

    # ---- taking messages

    def take_requeued(self, most: int) -> Run:
        """Take up to `most` messages of the first requeued run; there must be one."""
        low, high, attempts, batch = self.requeued[0]
        if high - low > most:
            high = low + most
            self.requeued[0] = (high, self.requeued[0][1], attempts, batch)
        else:
            self.requeued.popleft()
            self.requeued_after.popleft()
        self.requeued_count -= high - low
        return low, high, attempts, batch

    def put_back(self, run: Run) -> None:
        """Put a taken run back, as the first one."""
        self.requeued.appendleft(run)
        self.requeued_after.appendleft(0)
        self.requeued_count += run[1] - run[0]

    def peek_new(self) -> Range:
        """Return the next run (low, high) at the cursor; low == high if there is none."""
        skips = self.skips
        while skips and skips[0][0] <= self.cursor:
            low, high = skips.popleft()
            self._skipped -= high - low
            self.cursor = high
        if skips:
            return self.cursor, min(skips[0][0], self.released)
        return self.cursor, self.released

    def take_new_below(self, end: int) -> list[Range]:
        """Move the cursor over all messages below `end`, and return them as runs."""
        taken: list[Range] = []
        while True:
            low, high = self.peek_new()
            high = min(high, end)
            if low >= high:
                return taken
            self.take_new(high - low)
            taken.append((low, high))

    def take_requeued_where(self, matches: Callable[[Run], bool], most: int = sys.maxsize) -> list[Run]:
        """Take the matching runs out of the first `most` requeued runs."""
        taken = []
        others = []
        for _ in range(min(most, len(self.requeued))):
            run = self.requeued.popleft()
            after = self.requeued_after.popleft()
            if matches(run):
                taken.append(run)
            else:
                others.append((run, after))
        self.requeued.extendleft(run for run, _ in reversed(others))
        self.requeued_after.extendleft(after for _, after in reversed(others))
        self.requeued_count -= message_count(taken)
        return taken

    def take_queued(self, seq: int, most: int) -> bool:
        """Take one queued message, wherever it is in the queue.

        Return False if it is not queued, or if it is behind the first `most` requeued runs.
        """
        for index, (low, high, attempts, batch) in enumerate(islice(self.requeued, most)):
            if low <= seq < high:
                after = self.requeued_after[index]
                del self.requeued[index], self.requeued_after[index]
                for rest_low, rest_high in ((seq + 1, high), (low, seq)):
                    if rest_low < rest_high:
                        self.requeued.insert(index, (rest_low, rest_high, attempts, batch))
                        self.requeued_after.insert(index, after)
                self.requeued_count -= 1
                return True
        return self._take_new_one(seq)

    def _take_new_one(self, seq: int) -> bool:
        """Make the cursor jump over one message; False if it is behind the cursor, or jumped over already."""
        if not self.cursor <= seq < self.released:
            return False
        index = bisect_right(self.skips, (seq, sys.maxsize))
        if index and self.skips[index - 1][1] > seq:
            return False
        self.skips.insert(index, (seq, seq + 1))
        self._skipped += 1
        return True

    def queued(self, most: int) -> list[Run]:
        """Return the next `most` messages in delivery order, without taking them."""
        runs = []
        for low, high, attempts, batch in self._in_order():
            if not most:
                break
            high = min(high, low + most)
            runs.append((low, high, attempts, batch))
            most -= high - low
        return runs

    def oldest(self, most: int) -> int | None:
        """Return the lowest queued number, or None. Only the first `most` requeued runs are compared."""
        new = (low for low, _ in islice(self._new_runs(), 1))
        requeued = (run[0] for run in islice(self.requeued, most))
        return min(chain(new, requeued), default=None)

    def _in_order(self) -> Iterator[Run]:
        requeued = iter(zip(self.requeued, self.requeued_after, strict=True))
        next_requeued = next(requeued, None)
        for low, high in self._new_runs():
            while next_requeued is not None and next_requeued[1] < high:
                if next_requeued[1] > low:
                    yield low, next_requeued[1], 0, None
                    low = next_requeued[1]
                yield next_requeued[0]
                next_requeued = next(requeued, None)
            yield low, high, 0, None
        while next_requeued is not None:
            yield next_requeued[0]
            next_requeued = next(requeued, None)

    def _new_runs(self) -> Iterator[Range]:
        """Yield the runs between the skipped ranges."""
        low = self.cursor
        for skip_low, skip_high in self.skips:
            if skip_low > low:
                yield low, min(skip_low, self.released)
            low = max(low, skip_high)
        if low < self.released:
            yield low, self.released

    def take_new(self, count: int) -> None:
        """Move the cursor over `count` messages of the run that `peek_new` returned."""
        self.cursor += count

    def empty(self) -> None:
        """Finish all released messages, also lost ones: an operator accepts that."""
        self.requeued.clear()
        self.requeued_after.clear()
        self.requeued_count = 0
        self.deferred.clear()
        self.skips.clear()
        self._skipped = 0
        self.cursor = self.released
        self.finished = SeqRanges(self.released)
        self.lost = SeqRanges()
        self.lost_waits.clear()

    def seek(
        self,
        seq: int,
        not_due: Iterable[tuple[int, int, int]],
        holes: Sequence[Range],
        skip_below: int,
        in_flight: Iterable[Run],
    ) -> int:
        """Queue all messages from `seq` on, and finish those queued ones before `skip_below` that were never sent.

        Return how many these were. No other unfinished message is lost: deferred ones stay deferred, requeued ones and
        those of `in_flight`, which are from `seq` on, keep their attempts. `not_due` are other messages that were
        published with a delay, as (low, high, due_ns), each once. `holes` are ranges without messages. Lost messages
        stay lost, if they are not before `skip_below`.
        """
        unsent = [run[:2] for run in self.requeued if not run[2]]
        end = min(skip_below, seq)
        skipped = [(low, min(high, end)) for low, high in (*self._new_runs(), *unsent) if low < end]
        for low, high in [*skipped, *self.forget_lost([(0, end)])]:
            self.finished.add(low, high)
        unfinished = list(self.finished.gaps(0, seq))
        new = common(self._new_runs(), unfinished)
        lost = self.lost
        lost_waits = self.lost_waits[:]
        before = list(zip(self.requeued, self.requeued_after, strict=True))
        deferred = list(self.deferred)
        self.empty()
        self.lost = lost
        self.lost_waits = lost_waits
        self.finished = _all_below_but(unfinished, seq, lost.gaps_in(holes))
        lost_behind = common([(seq, self.released)], ranges_of(lost))
        settled = _all_below_but(new, seq, union([*holes, *lost_behind]))
        self.cursor = settled.floor
        for (low, high, attempts, batch), after in before:
            for gap_low, gap_high in self.unsettled(low, min(high, seq)):
                self.requeue((gap_low, gap_high, attempts, batch), min(after, seq))
        tried = [
            (max(low, seq), high, attempts, batch) for (low, high, attempts, batch), _ in before if attempts
        ]
        sent = [run for run in (*tried, *in_flight) if run[1] > seq]
        for run in sorted(sent, key=itemgetter(0)):
            self.requeue(run, run[0])  # in the order of the log
        for due_ns, run in deferred:
            self.defer(due_ns, run)
        kept = [*sent, *(run for _, run in deferred if run[1] > seq)]
        settled.add_all_missing((max(run[0], seq), run[1]) for run in kept)
        newly_deferred = [
            (due_ns, gap)
            for low, high, due_ns in not_due
            for gap in settled.gaps(max(low, seq), min(high, self.released))
        ]
        for due_ns, (low, high) in newly_deferred:
            self.defer(due_ns, (low, high, 0, None))
            settled.add(low, high)
        for low, high in [(self.cursor, settled.floor), *settled.islands()]:
            self.skip(low, high)
        return count_of(skipped)


def _all_below_but(runs: Sequence[Range], seq: int, others: Iterable[Range]) -> SeqRanges:
    """Return the numbers below `seq` that are not in these rising runs, and those in `others`, which are from it on."""
    floor = runs[0][0] if runs else seq
    found = SeqRanges(floor)
    for (_, low), (high, _) in pairwise([*runs, (seq, seq)]):
        if low < high:
            found.add(low, high)
    for low, high in others:
        found.add(low, high)
    return found
