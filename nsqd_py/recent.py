"""The newest batches of a topic, which memory holds beside the log."""

from __future__ import annotations

import sys
from bisect import bisect_right

from nsqd_py.batch import Batch

_MOST_BATCHES = 50_000
_SLACK_FROM = 1024


class Recent:
    """Up to about `most_count` messages; None: all of them, since there is nowhere else to read from.

    batches, first_seqs  in order; whoever appends to one appends to the other, and counts
    trim_above           so many messages may be in it before `trim` should be called
    """

    __slots__ = ("_most", "_most_batches", "batches", "count", "first_seqs", "trim_above")

    def __init__(self, most_count: int | None) -> None:
        self.batches: list[Batch] = []
        self.first_seqs: list[int] = []
        self.count = 0
        self._most = sys.maxsize if most_count is None else most_count
        self._most_batches = sys.maxsize if most_count is None else _MOST_BATCHES
        slack = self._most // 8 if most_count is not None and most_count >= _SLACK_FROM else 0
        self.trim_above = self._most + slack

    def find(self, seq: int) -> Batch | None:
        """The batch that holds `seq`; None when it is older than all that are here."""
        firsts = self.first_seqs
        return self.batches[bisect_right(firsts, seq) - 1] if firsts and seq >= firsts[0] else None

    def seq_at(self, timestamp_ns: int) -> int | None:
        """The number of the first message that was published at that time or later; None when there is none."""
        young = (batch.first_seq for batch in self.batches if batch.timestamp_ns >= timestamp_ns)
        return next(young, None)

    def by_first_seq(self) -> dict[int, Batch]:
        return dict(zip(self.first_seqs, self.batches, strict=True))

    def trim(self, passed: int) -> None:
        """Forget what is before `passed`, and what is more than may be here."""
        batches = self.batches
        drop = 0
        left = self.count
        for batch in batches:
            if batch.end_seq > passed and left <= self._most and len(batches) - drop <= self._most_batches:
                break
            left -= batch.count
            drop += 1
        if drop:
            del batches[:drop]
            del self.first_seqs[:drop]
            self.count = left
