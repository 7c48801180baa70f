"""Two clocks: the wall clock for timestamps of messages, and a steady clock for deadlines, ages and ids."""

from __future__ import annotations

import time

wall_ns = time.time_ns


class SteadyClock:
    """Time in ns that advances evenly: a step of the wall clock fires no time-out.

    It begins with the wall clock's ns since the epoch at the first start, and goes on over restarts (`go_on_at`).
    """

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        return time.monotonic_ns() + self._offset_ns

    def go_on_at(self, now_ns: int) -> None:
        """Set the current time. Call this before anything has read the clock."""
        self._offset_ns = now_ns - time.monotonic_ns()
