"""Messages that cannot be read now: the ranges of them, and when to try again."""

from __future__ import annotations

from nsqd_py.queue.position import Position

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
        passed = [end for end in self._ranges if end <= floor]
        for end in passed:
            del self._ranges[end]

    def read(self, seq: int) -> None:
        """Remove the range of a message that was read; its other messages stay deferred until their next try."""
        around = [end for end, (start, _) in self._ranges.items() if start <= seq < end]
        for end in around:
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
