"""Counting messages by topic, channel and state, from ranges of sequence numbers only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nsqd_py.diskqueue.journal import SavedPosition
from nsqd_py.diskqueue.ranges import Range, SeqRanges, common
from nsqd_py.diskqueue.recovery import DeferredSpan, needed_of
from nsqd_py.fsck.reports import ChannelReport


def size_of(ranges: Iterable[Range]) -> int:
    return sum(max(0, high - low) for low, high in ranges)


def released_until(log_end: int, saved: Iterable[SavedPosition], held: SavedPosition | None, *, is_held: bool) -> int:
    """Return the number up to which a topic has released its messages to its channels.

    A topic that is not held has released all; one that is held continues at its position.
    """
    if not is_held:
        return log_end
    return max([held.finished.floor if held is not None else 0, *(position.end for position in saved)])


@dataclass(frozen=True, slots=True)
class LogNumbers:
    """The numbers of a topic's log.

    kept      messages that can be read, in rising order
    released  number up to which messages are in the channels
    deferred  messages that were published with a delay
    end       number of the next message, if it is above all that can be read
    """

    kept: list[Range]
    released: int
    deferred: list[DeferredSpan]
    end: int = 0

    @property
    def held(self) -> list[Range]:
        """The kept messages that are in no channel yet."""
        return [(max(low, self.released), high) for low, high in self.kept if high > self.released]

    @property
    def _end(self) -> int:
        return max(self.end, self.kept[-1][1] if self.kept else 0)

    @property
    def holes(self) -> list[Range]:
        """The numbers of messages that were published and cannot be read, in rising order."""
        lows = [0, *(high for _, high in self.kept)]
        highs = [*(low for low, _ in self.kept), self._end]
        return [(low, high) for low, high in zip(lows, highs, strict=True) if low < high]

    def missing(self, saved: Iterable[SavedPosition], held: SavedPosition | None) -> list[Range]:
        """Return the unreadable numbers that some channel, or the topic, has not finished."""
        missing = [hole for position in saved for hole in needed_of(self.holes, position.finished, self.released)]
        unreleased = [(max(low, self.released), high) for low, high in self.holes]
        return missing + needed_of(unreleased, held.finished if held is not None else SeqRanges(), self._end)

    def unfinished(self, saved: SavedPosition) -> list[Range]:
        """Return the kept messages that this channel has not finished."""
        return [gap for low, high in self.kept for gap in saved.finished.gaps(low, min(high, self.released))]

    def report(self, name: str, saved: SavedPosition, now_ns: int, *, is_paused: bool) -> ChannelReport:
        """Return the report on one channel."""
        unfinished = self.unfinished(saved)
        count = size_of(unfinished)
        deferred = len(self.later(unfinished, saved.waiting, now_ns))
        missing = size_of(needed_of(self.holes, saved.finished, self.released))
        given = size_of((low, min(high, self.released)) for low, high in self.kept)
        return ChannelReport(name, is_paused, count - deferred, deferred, given - count, missing)

    def later(self, unfinished: list[Range], waiting: Mapping[int, tuple[int, int]], now_ns: int) -> set[int]:
        """Return those of `unfinished` that are due later, by their last requeue, or else by their publish."""
        deferred = [(span.low, span.high) for span in self.deferred if span.due_ns > now_ns]
        later = {seq for low, high in common(deferred, unfinished) for seq in range(low, high)}
        lows = [low for low, _ in unfinished]
        for seq, (due_ns, _) in waiting.items():
            if due_ns <= now_ns:
                later.discard(seq)
            elif (place := bisect_right(lows, seq)) and seq < unfinished[place - 1][1]:
                later.add(seq)
        return later
