"""How many messages are still to be shown."""

from __future__ import annotations

from collections.abc import Sequence


class Allowance:
    """Counts down from `-n`; 0 or less is no limit."""

    def __init__(self, count: int) -> None:
        self._left = count if count > 0 else None

    @property
    def is_over(self) -> bool:
        return self._left == 0

    def take(self, matching: Sequence[int], count: int) -> tuple[Sequence[int], int]:
        """Of a batch of `count` messages, those that are to be shown, and how many have been seen with them.

        What comes behind the last one that is shown has not been seen: it is for others.
        """
        if self._left is None:
            return matching, count
        if len(matching) < self._left:
            self._left -= len(matching)
            return matching, count
        shown = matching[: self._left]
        self._left = 0
        return shown, shown[-1] + 1 if shown else 0
