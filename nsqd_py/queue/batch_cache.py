"""The newest batches of a topic, kept in memory."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable

from nsqd_py.batch import Batch
from nsqd_py.guid import id_time_ns

_MOST_BATCHES = 50_000
_SLACK_FROM = 1024
_LOOK_AGAIN_FROM = 64
_LOOK_AGAIN_FROM_BYTES = 64 * 1024
# Changes below this size are not reported to the memory budget, so that a single PUB pays only for a comparison: 0.1 us
# of 3.6 us in the topic, and 1 us of 23 us for an MPUB of 200 messages.
_TELL_EVERY_BYTES = 16 * 1024
# The limit in bytes is this times the limit in messages. Older messages are read from the log, through the page cache.
_BYTES_A_MESSAGE = 3 * 1024


class BatchCache:
    """The newest batches: about `most_count` messages, fewer if they are larger than 3 KiB on average.

    If `most_count` is None, it keeps all messages, because they are in no log.

    batches, first_seqs  in order; the caller appends to both and updates `count` and `size_bytes`
    trim_above           call `trim` when `count` exceeds this
    size_bytes           the memory that the batches take
    tell_above           call `tell` when `size_bytes` exceeds this
    """

    __slots__ = (
        "_look_at",
        "_look_at_bytes",
        "_most",
        "_most_batches",
        "_most_bytes",
        "_on_change",
        "_told_bytes",
        "batches",
        "count",
        "first_seqs",
        "size_bytes",
        "tell_above",
        "trim_above",
    )

    def __init__(self, most_count: int | None) -> None:
        self.batches: list[Batch] = []
        self.first_seqs: list[int] = []
        self.count = 0
        self.size_bytes = 0
        self.tell_above = sys.maxsize
        self._told_bytes = 0
        self._on_change: Callable[[int], None] | None = None
        self._most = sys.maxsize if most_count is None else most_count
        self._most_batches = sys.maxsize if most_count is None else _MOST_BATCHES
        self._most_bytes = self._most * _BYTES_A_MESSAGE
        self._look_at = _LOOK_AGAIN_FROM
        self._look_at_bytes = _LOOK_AGAIN_FROM_BYTES
        slack = self._most // 8 if most_count is not None and most_count >= _SLACK_FROM else 0
        self.trim_above = self._most + slack

    # ---- the budget

    def tell_of_changes(self, on_change: Callable[[int], None]) -> None:
        """Call `on_change` with the change of `size_bytes` since the last call."""
        self._on_change = on_change
        self.tell_above = _TELL_EVERY_BYTES

    def tell(self) -> None:
        """Report the change of size to the budget; drop the oldest batches if the cache is too large."""
        if self.size_bytes > self._most_bytes:
            self.keep_bytes(self._most_bytes)
            return
        if self._on_change is not None and self.size_bytes != self._told_bytes:
            change = self.size_bytes - self._told_bytes
            self._told_bytes = self.size_bytes
            self.tell_above = self.size_bytes + _TELL_EVERY_BYTES
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

    def by_first_seq(self) -> dict[int, Batch]:
        return dict(zip(self.first_seqs, self.batches, strict=True))

    # ---- dropping

    def trim(self, passed: int) -> None:
        """Drop messages before `passed`, and the oldest above the limit; a batch may be cut."""
        drop = 0
        left = self.count
        size_bytes = self.size_bytes
        cut: Batch | None = None
        for batch in self.batches:
            are_too_many = left > self._most
            is_ahead = batch.end_seq > passed
            if is_ahead and not are_too_many and len(self.batches) - drop <= self._most_batches:
                break
            left -= batch.count
            size_bytes -= batch.memory_bytes
            drop += 1
            if is_ahead and are_too_many and left < self._most:
                cut = batch.part(batch.count - (self._most - left), batch.count)
                break
        if drop:
            self._drop_first(drop, left, size_bytes)
        if cut is not None:
            self.batches.insert(0, cut)
            self.first_seqs.insert(0, cut.first_seq)
            self.count += cut.count
            self.size_bytes += cut.memory_bytes
        self.tell()

    def keep_bytes(self, most_bytes: int) -> None:
        """Drop the oldest batches until the rest takes at most `most_bytes`."""
        drop = 0
        left = self.count
        size_bytes = self.size_bytes
        for batch in self.batches:
            if size_bytes <= most_bytes:
                break
            left -= batch.count
            size_bytes -= batch.memory_bytes
            drop += 1
        if drop:
            self._drop_first(drop, left, size_bytes)
        self.tell()

    def _drop_first(self, drop: int, left: int, size_bytes: int) -> None:
        del self.batches[:drop]
        del self.first_seqs[:drop]
        self.count = left
        self.size_bytes = size_bytes

    def drop_unneeded(self, is_needed: Callable[[int, int], bool]) -> None:
        """Drop unneeded batches: the newest at once, the others when the cache has grown by a quarter."""
        batches = self.batches
        while batches and not is_needed(batches[-1].first_seq, batches[-1].end_seq):
            batch = batches.pop()
            self.first_seqs.pop()
            self.count -= batch.count
            self.size_bytes -= batch.memory_bytes
        if len(batches) < self._look_at and self.size_bytes < self._look_at_bytes:
            return
        self.batches = [batch for batch in batches if is_needed(batch.first_seq, batch.end_seq)]
        self.first_seqs = [batch.first_seq for batch in self.batches]
        self.count = sum(batch.count for batch in self.batches)
        self.size_bytes = sum(batch.memory_bytes for batch in self.batches)
        self._look_at = max(_LOOK_AGAIN_FROM, len(self.batches) * 5 // 4)
        self._look_at_bytes = max(_LOOK_AGAIN_FROM_BYTES, self.size_bytes * 5 // 4)
