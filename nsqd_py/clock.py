"""The clocks. The wall clock gives the timestamps of messages. A steady clock gives all deadlines, ages and ids."""

from __future__ import annotations

import time

wall_ns = time.time_ns


class SteadyClock:
    """A clock in ns since the epoch that advances evenly: a step of the wall clock triggers no time-out."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        return time.monotonic_ns() + self._offset_ns

    def go_on_at(self, now_ns: int) -> None:
        """Set the current time. Call it before anything has read the clock."""
        self._offset_ns = now_ns - time.monotonic_ns()
