"""Reads the messages of a topic by sequence number: from memory, or from its log."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Protocol

from nsqd_py.errors import is_full
from nsqd_py.protocol.batch import Batch
from nsqd_py.protocol.message_ids import id_time_ns
from nsqd_py.queue.position import Position
from nsqd_py.queue.storage import MessageLog
from nsqd_py.runtime.logs.lines import DaemonLog

_MOST_BATCHES = 50_000
_SLACK_FROM = 1024
_RECHECK_FROM = 64
_RECHECK_FROM_BYTES = 64 * 1024
# Changes below this size are not reported to the memory budget, so that a single PUB pays only for a comparison: 0.1 us
# of 3.6 us in the topic, and 1 us of 23 us for an MPUB of 200 messages.
_REPORT_EVERY_BYTES = 16 * 1024
# The limit in bytes is this times the limit in messages. Older messages are read from the log, through the page cache.
_BYTES_A_MESSAGE = 3 * 1024


@dataclass(slots=True, eq=False, repr=False)
class BatchCache:
    """The newest batches: about `_most` messages, fewer if they are larger than 3 KiB on average.

    Without a limit, it keeps all messages, because they are in no log.

    batches, first_seqs  in order; the caller appends to both and updates `count` and `size_bytes`
    trim_above           call `trim` when `count` exceeds this
    size_bytes           the memory that the batches take
    report_above         call `report` when `size_bytes` exceeds this
    """

    _most: int = sys.maxsize
    batches: list[Batch] = field(default_factory=list)
    first_seqs: list[int] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0
    report_above: int = sys.maxsize
    trim_above: int = field(init=False)
    _reported_bytes: int = 0
    _on_change: Callable[[int], None] | None = None
    _most_batches: int = field(init=False)
    _look_at: int = _RECHECK_FROM
    _look_at_bytes: int = _RECHECK_FROM_BYTES

    def __post_init__(self) -> None:
        self._most_batches = _MOST_BATCHES if self._most < sys.maxsize else sys.maxsize
        self.trim_above = self._most + (self._most // 8 if _SLACK_FROM <= self._most < sys.maxsize else 0)

    # ---- the budget

    def report_changes_to(self, on_change: Callable[[int], None]) -> None:
        """Call `on_change` with the change of `size_bytes` since the last call."""
        self._on_change = on_change
        self.report_above = _REPORT_EVERY_BYTES

    def report(self) -> None:
        """Report the change of size to the budget; drop the oldest batches if the cache is too large."""
        if self.size_bytes > self._most * _BYTES_A_MESSAGE:
            self.keep_bytes(self._most * _BYTES_A_MESSAGE)
            return
        if self._on_change is not None and self.size_bytes != self._reported_bytes:
            change = self.size_bytes - self._reported_bytes
            self._reported_bytes = self.size_bytes
            self.report_above = self.size_bytes + _REPORT_EVERY_BYTES
            self._on_change(change)

    # ---- looking things up

    def find(self, seq: int) -> Batch | None:
        """Return the batch that contains `seq`, or None."""
        firsts = self.first_seqs
        if not firsts or seq < firsts[0]:
            return None
        # Consumers without a backlog read the newest batch: 0.1 us less than a search.
        batch = self.batches[-1] if seq >= firsts[-1] else self.batches[bisect_right(firsts, seq) - 1]
        return batch if seq < batch.first_seq + batch.count else None

    def first_behind(self, seq: int) -> Batch | None:
        """Return the first batch that begins after `seq`, or None."""
        place = bisect_right(self.first_seqs, seq)
        return self.batches[place] if place < len(self.batches) else None

    def seq_since(self, steady_ns: int) -> int | None:
        """Return the number of the first message whose id is of that time or later, or None."""
        young = (batch.first_seq for batch in self.batches if id_time_ns(batch.base_id) >= steady_ns)
        return next(young, None)

    # ---- dropping

    def trim(self, passed: int) -> None:
        """Drop messages before `passed`, and the oldest above the limit; a batch may be cut."""
        drop = 0
        cut: Batch | None = None
        for batch in self.batches:
            are_too_many = self.count > self._most
            is_ahead = batch.end_seq > passed
            if is_ahead and not are_too_many and len(self.batches) - drop <= self._most_batches:
                break
            self.count -= batch.count
            self.size_bytes -= batch.memory_bytes
            drop += 1
            if is_ahead and are_too_many and self.count < self._most:
                cut = batch.part(batch.count - (self._most - self.count), batch.count)
                break
        self._delete_first(drop)
        if cut is not None:
            self.batches.insert(0, cut)
            self.first_seqs.insert(0, cut.first_seq)
            self.count += cut.count
            self.size_bytes += cut.memory_bytes
        self.report()

    def keep_bytes(self, most_bytes: int) -> None:
        """Drop the oldest batches until the rest takes at most `most_bytes`."""
        drop = 0
        while drop < len(self.batches) and self.size_bytes > most_bytes:
            self._uncount(self.batches[drop])
            drop += 1
        self._delete_first(drop)
        self.report()

    def _uncount(self, batch: Batch) -> None:
        self.count -= batch.count
        self.size_bytes -= batch.memory_bytes

    def _delete_first(self, count: int) -> None:
        del self.batches[:count]
        del self.first_seqs[:count]

    def drop_unneeded(self, is_needed: Callable[[int, int], bool]) -> None:
        """Drop unneeded batches: the newest at once, the others when the cache has grown by a quarter."""
        batches = self.batches
        while batches and not is_needed(batches[-1].first_seq, batches[-1].end_seq):
            self._uncount(batches.pop())
            self.first_seqs.pop()
        if len(batches) < self._look_at and self.size_bytes < self._look_at_bytes:
            return
        self.batches = [batch for batch in batches if is_needed(batch.first_seq, batch.end_seq)]
        self.first_seqs = [batch.first_seq for batch in self.batches]
        self.count = sum(batch.count for batch in self.batches)
        self.size_bytes = sum(batch.memory_bytes for batch in self.batches)
        self._look_at = max(_RECHECK_FROM, len(self.batches) * 5 // 4)
        self._look_at_bytes = max(_RECHECK_FROM_BYTES, self.size_bytes * 5 // 4)


_REPORT_EVERY_NS = 10_000_000_000

_first_seq = attrgetter("first_seq")


class MessageReader:
    """The messages of one topic. Failed reads are logged, at most every 10 s."""

    __slots__ = ("_failed_ns", "_log", "_name", "_recent", "_report", "_wall_clock")

    def __init__(
        self,
        name: str,
        log: MessageLog | None,
        recent: BatchCache,
        wall_clock: Callable[[], int],
        report: DaemonLog,
    ) -> None:
        self._name = name
        self._log = log
        self._recent = recent
        self._wall_clock = wall_clock
        self._report = report
        self._failed_ns = 0

    @property
    def memory_from(self) -> int:
        """From this number on, all needed messages are in memory; the highest number if none is."""
        if self._log is None:
            return 0
        firsts = self._recent.first_seqs
        return firsts[0] if firsts else sys.maxsize

    def batch_at(self, seq: int) -> Batch | None:
        """Return the batch that contains `seq`, or else the next batch, or None. Raises OSError."""
        recent = self._recent.find(seq)
        if recent is not None:
            return recent
        if self._log is not None:
            chunk = self._read(self._log, seq)
            for batch in chunk[max(0, bisect_right(chunk, seq, key=_first_seq) - 1) :]:
                if batch.end_seq > seq:
                    return batch
        return self._recent.first_behind(seq)

    def batches_at(self, seqs: list[int]) -> Iterator[Batch | None]:
        """Yield `batch_at` of each of these numbers, which must ascend. Neighbouring batches are not read."""
        log = self._log
        in_memory = bisect_left(seqs, self.memory_from) if log is not None else 0
        if log is not None and in_memory:
            at = 0
            try:
                for at, batch in enumerate(log.read_each(seqs[:in_memory])):
                    yield batch if batch is not None else self.batch_at(seqs[at])
            except BlockingIOError:  # a thread reads it now
                raise
            except OSError as error:
                self._report_failure(seqs[at], error)
                raise
        for seq in seqs[in_memory:]:
            yield self.batch_at(seq)

    def _read(self, log: MessageLog, seq: int) -> list[Batch]:
        try:
            return log.read(seq)
        except BlockingIOError:  # a thread reads it
            raise
        except OSError as error:
            self._report_failure(seq, error)
            raise

    def _report_failure(self, seq: int, error: OSError) -> None:
        now_ns = self._wall_clock()
        if abs(now_ns - self._failed_ns) >= _REPORT_EVERY_NS:
            self._failed_ns = now_ns
            text = (
                "the disk is full, message %d waits"
                if is_full(error)
                else "failed to read message %d from disk"
            )
            self._report.of_clients.error("TOPIC(%s): " + text + " - %s", self._name, seq, error)

    def readable_from(self, seq: int) -> int:
        """Return the next number after `seq` from which messages may be readable, if `seq` is not."""
        if self._log is None:
            return seq + 1
        return min(self._log.readable_from(seq), max(seq + 1, self.memory_from))

    def first_published_since(self, steady_ns: int, low: int, *, by_timestamp: bool) -> int | None:
        """Return the number of the first message from `low` on that was published since that time. Raises OSError.

        It compares ids, because the wall clock may have been set; `by_timestamp` compares timestamps in a log that
        takes dead letters, which keep their ids.
        """
        if self._log is None:
            return self._recent.seq_since(steady_ns)
        return self._log.first_published_since(steady_ns, low, by_timestamp=by_timestamp)


LONGEST_RUN = 64  # longer runs are read in chunks when they are delivered
MOST_ATTEMPTS = 0xFFFF
_LEAST_AHEAD = 64
_MOST_AHEAD = 4096
_PER_WANTED = 4
_MOST_BYTES = 2 * 1024 * 1024  # of bodies
_CUT_ABOVE = 4096  # of a batch with a larger body, only the needed messages are kept
_LOOK_AT_TIME_EVERY = 16  # reads


def published_ns(batch: Batch) -> int:
    """Return the time from which the age of its messages counts, in ns of the steady clock: publish or due time.

    The publish time is that of the id, to 1 ms. The timestamp is of the wall clock, which may have been set since.
    """
    return max(id_time_ns(batch.base_id), batch.due_ns)


class BatchSource(Protocol):
    """The source of a channel's messages: the `MessageReader` of its topic."""

    def batch_at(self, seq: int) -> Batch | None:
        """Return the batch that contains `seq`, or else the next batch, or None. Raises OSError."""

    def batches_at(self, seqs: list[int]) -> Iterator[Batch | None]:
        """Yield `batch_at` of each of these numbers, which must ascend. Neighbouring batches are not read."""

    def readable_from(self, seq: int) -> int:
        """Return the next number after `seq` from which messages may be readable, if `seq` is not."""


def publish_time_ns(source: BatchSource, seq: int) -> int:
    """Return the publish time of a message, or its due time if it was deferred, in ns since the epoch.

    Return 0 if it cannot be read now.
    """
    try:
        batch = next(source.batches_at([seq]))
    except OSError:
        return 0
    return max(batch.timestamp_ns, batch.due_ns) if batch is not None else 0


class Lookahead:
    """Batches of the first requeued runs of a position.

    It reads four times the number of messages that consumers are about to take, and at most about 2 MiB of bodies.
    """

    __slots__ = ("_at", "_bytes", "_is_late", "_left", "_loaded", "_lows", "_position", "_source", "_spans")

    def __init__(self, position: Position, source: BatchSource, is_late: Callable[[], bool]) -> None:
        self._position = position
        self._source = source
        self._is_late = is_late
        self._loaded: dict[int, Batch] = {}
        self._spans: list[tuple[int, int]] = []
        self._lows: list[int] = []
        self._at = 0
        self._left = 0
        self._bytes = 0

    # ---- reading

    def prepare(self, low: int, wanted: int) -> bool:
        """Read ahead if `low`, the first requeued message, has not been read.

        Return False if the time of this event-loop iteration ended before that: call again in the next one. Raises
        BlockingIOError while a thread reads it.
        """
        if low in self._loaded:
            return True
        if self._at == len(self._spans) and (self._left <= 0 or not self._loaded):
            self._choose_runs(wanted)
        if self._at < len(self._spans):
            self._read_on()
        return low in self._loaded or self._at == len(self._spans)

    def _choose_runs(self, wanted: int) -> None:
        most = min(_MOST_AHEAD, max(_LEAST_AHEAD, _PER_WANTED * wanted))
        spans = [
            (low, high)
            for low, high, _, batch in islice(self._position.requeued, most)
            if batch is None and high - low <= LONGEST_RUN
        ]
        spans.sort()
        self._lows = [low for low, _ in spans]
        self._loaded.clear()
        self._spans = spans
        self._at = 0
        self._left = len(spans)
        self._bytes = 0

    def _read_on(self) -> None:
        loaded, spans = self._loaded, self._spans
        at = first = self._at
        last: Batch | None = None
        try:
            for batch in self._source.batches_at(self._lows[at:]):
                low, high = spans[at]
                at += 1
                if batch is not None and batch.first_seq <= low:
                    if len(batch.body) > _CUT_ABOVE and batch.count > high - low:
                        index = low - batch.first_seq
                        batch = batch.part(index, min(index + high - low, batch.count))
                    loaded[low] = batch
                    if batch is not last:
                        last = batch
                        self._bytes += len(batch.body)
                    if self._bytes > _MOST_BYTES:
                        at = len(spans)
                        break
                if not (at - first) % _LOOK_AT_TIME_EVERY and self._is_late():
                    break
        except BlockingIOError:
            self._at = at
            raise
        except OSError:  # delivery reads each of them alone
            at = len(spans)
        self._at = at

    # ---- handing out

    def take(self, low: int) -> Batch | None:
        """Return the batch that was read for the run that begins with `low`, or None."""
        batch = self._loaded.get(low)
        self._left -= 1
        if self._left <= 0 and self._at == len(self._spans):
            self._loaded.clear()
        return batch

    def forget(self) -> None:
        """Drop all that was read, after the position has changed."""
        self._loaded.clear()
        self._spans = []
        self._lows = []
        self._at = self._left = 0


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
        floor = self._position.settled_floor
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
            high - low
            for _, (low, high, _, _) in self._position.deferred
            if any(start <= low < end for start, end in ranges)
        )

    def __bool__(self) -> bool:
        return bool(self._ranges)
