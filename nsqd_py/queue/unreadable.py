"""Messages that the disk does not give: set aside, tried again later and later, never in the way of others."""

from __future__ import annotations

from nsqd_py.queue.position import Position

FIRST_DELAY_NS = 1_000_000_000
LONGEST_DELAY_NS = 60_000_000_000


class UnreadableRanges:
    """What of a channel's messages could not be read the last time, as ranges by the number that ends them.

    A range goes from where reading failed to where it may work again. Its messages are deferred in the channel's
    position; they stay unfinished, and come when the disk gives them.
    """

    __slots__ = ("_position", "_ranges")

    def __init__(self, position: Position) -> None:
        self._position = position
        self._ranges: dict[int, tuple[int, int]] = {}  # end: (start, how often reading failed)

    def failed(self, low: int, end: int) -> int:
        """Reading failed from `low` on; after how many ns it may be tried again: 1 s at first, 60 s at last."""
        self._forget_finished()
        start, failures = self._ranges.get(end, (low, 0))
        self._ranges[end] = min(start, low), failures + 1
        return min(FIRST_DELAY_NS << min(failures, 10), LONGEST_DELAY_NS)

    def _forget_finished(self) -> None:
        """What was emptied meanwhile."""
        floor = self._position.finished.floor
        for end in [end for end in self._ranges if end <= floor]:
            del self._ranges[end]

    def read(self, seq: int) -> None:
        """The disk gave this message: the others of its range wait for their next try only, no more for the disk."""
        for end in [end for end, (start, _) in self._ranges.items() if start <= seq < end]:
            del self._ranges[end]

    @property
    def count(self) -> int:
        """Messages that wait for the disk."""
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
