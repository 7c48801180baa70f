"""Unused memory, back to the system."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

from nsqd_py.debug.collector import COLLECTIONS

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NS_PER_US = 1000
# Between two collections on request.
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
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def memory_figures() -> dict[str, Any]:
    """Blocks and resident bytes of this process, pauses of the last collections; 0 where Python has nothing.

    The blocks are counted by the pools that hold them: 0.3 ms where there are five million.
    """
    pauses_ns = sorted(COLLECTIONS.last_pauses_ns)
    return {
        "heap_objects": sys.getallocatedblocks(),
        "heap_idle_bytes": 0,
        "heap_in_use_bytes": resident_bytes(),
        "heap_released_bytes": 0,
        "gc_pause_usec_100": percentile(1.0, pauses_ns) // _NS_PER_US,
        "gc_pause_usec_99": percentile(0.99, pauses_ns) // _NS_PER_US,
        "gc_pause_usec_95": percentile(0.95, pauses_ns) // _NS_PER_US,
        "next_gc_bytes": 0,
        "gc_total_runs": sum(generation["collections"] for generation in gc.get_stats()),
    }


def percentile(part: float, ordered: list[int]) -> int:
    """The value that this part of the ordered ones does not exceed; 0 of none."""
    if not ordered:
        return 0
    return ordered[min(len(ordered) - 1, int(part * len(ordered) + 0.5))]
