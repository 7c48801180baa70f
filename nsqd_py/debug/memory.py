"""Unused memory, back to the system."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

REST_S = 10.0


class Freed(NamedTuple):
    """What came of it. Sizes of the whole process in bytes, 0 where the system does not tell."""

    collected: int
    before_bytes: int
    after_bytes: int


class Freeing:
    """Frees memory, but not again and again: anybody may ask for it, and everything waits for the collector."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._next_s = 0.0

    def free(self, threadpool: Any) -> Freed:
        """As `free_memory`. Within `REST_S` of the last time, or while it is at work, nothing is collected."""
        if self._clock() < self._next_s:
            return Freed(0, resident_bytes(), resident_bytes())
        self._next_s = self._clock() + REST_S
        return free_memory(threadpool)


def free_memory(threadpool: Any) -> Freed:
    """Collect garbage, which stops everything (30 ms a million objects), and trim the allocator's heap in a thread."""
    before_bytes = resident_bytes()
    collected = gc.collect()
    threadpool.apply(_trim)
    return Freed(collected, before_bytes, resident_bytes())


def _trim() -> None:
    import ctypes  # slow to import

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others do without
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    """How much memory the process has, as Linux counts it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
