"""How many messages of a topic's log are what to whom: facts about numbers, as ranges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nsqd_py.checking.reports import ChannelReport
from nsqd_py.diskqueue.journal import SavedPosition
from nsqd_py.diskqueue.recovery import DeferredSpan

Range = tuple[int, int]


def size_of(ranges: Iterable[Range]) -> int:
    return sum(max(0, high - low) for low, high in ranges)


def union(ranges: Iterable[Range]) -> list[Range]:
    """Ranges that may overlap, merged, in rising order."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        elif high > low:
            merged.append((low, high))
    return merged


def released_until(
    log_end: int, saved: Iterable[SavedPosition], held: SavedPosition | None, *, is_held: bool
) -> int:
    """The number up to which a topic has given its messages to its channels.

    One that flows has given all it has; one that is held goes on from where it stood.
    """
    if not is_held:
        return log_end
    return max([held.finished.floor if held is not None else 0, *(position.end for position in saved)])


@dataclass(frozen=True, slots=True)
class LogNumbers:
    """The numbers of a topic's log.

    kept      what can be read, in rising order
    released  up to here it is in the channels
    deferred  what was published to be delivered later
    """

    kept: list[Range]
    released: int
    deferred: list[DeferredSpan]

    @property
    def held(self) -> list[Range]:
        """Kept, and in no channel yet."""
        return [(max(low, self.released), high) for low, high in self.kept if high > self.released]

    def unfinished(self, saved: SavedPosition) -> list[Range]:
        """Kept, and to be delivered in this channel."""
        return [gap for low, high in self.kept for gap in saved.finished.gaps(low, min(high, self.released))]

    def report(self, name: str, saved: SavedPosition, now_ns: int, *, is_paused: bool) -> ChannelReport:
        """What the log is to one channel."""
        unfinished = self.unfinished(saved)
        count = size_of(unfinished)
        deferred = self._deferred_count(unfinished, saved, now_ns)
        first = self.kept[0][0] if self.kept else self.released
        wanted = size_of(saved.finished.gaps(first, self.released))
        given = size_of((low, min(high, self.released)) for low, high in self.kept)
        return ChannelReport(name, is_paused, count - deferred, deferred, given - count, wanted - count)

    def _deferred_count(self, unfinished: list[Range], saved: SavedPosition, now_ns: int) -> int:
        """Due later: by their last requeue, or else by how they were published."""
        later = {
            seq
            for span in self.deferred
            if span.due_ns > now_ns
            for low, high in unfinished
            for seq in range(max(low, span.low), min(high, span.high))
        }
        for seq, (due_ns, _) in saved.waiting.items():
            if due_ns <= now_ns:
                later.discard(seq)
            elif any(low <= seq < high for low, high in unfinished):
                later.add(seq)
        return len(later)
