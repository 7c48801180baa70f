"""The two clocks: the wall clock for what a message says of itself, a steady one for all deadlines."""

from __future__ import annotations

import time

wall_ns = time.time_ns


class SteadyClock:
    """ns since the epoch as of the start, advancing evenly: a step of the wall clock fires no time-out."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        return time.monotonic_ns() + self._offset_ns
