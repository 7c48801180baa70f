"""The two clocks: the wall clock for what a message says of itself, a steady one for all deadlines, ages and ids."""

from __future__ import annotations

import time

wall_ns = time.time_ns


class SteadyClock:
    """ns since the epoch as of the first start, advancing evenly: a step of the wall clock fires no time-out."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        return time.monotonic_ns() + self._offset_ns

    def go_on_at(self, now_ns: int) -> None:
        """Show this time now. To be called before anything has asked for the time."""
        self._offset_ns = now_ns - time.monotonic_ns()
