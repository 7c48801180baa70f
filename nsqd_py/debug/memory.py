"""The memory of this process under the names of Go's nsqd, and the return of unused memory to the system."""

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
# The least time between two collections on request.
REST_S = 10.0


class Freed(NamedTuple):
    """The result of freeing memory. Sizes are of the whole process in bytes, 0 if the system does not report them."""

    collected: int
    before_bytes: int
    after_bytes: int


class Freeing:
    """Frees memory on request, at most every REST_S: the whole process waits for a collection."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._next_s = 0.0

    def free(self, threadpool: Any) -> Freed:
        """Free memory (see `free_memory`), unless that was done within REST_S."""
        if self._clock() < self._next_s:
            return Freed(0, resident_bytes(), resident_bytes())
        self._next_s = self._clock() + REST_S
        return free_memory(threadpool)


def free_memory(threadpool: Any) -> Freed:
    """Collect garbage, which stops the process (30 ms a million objects), and trim the allocator's heap in a thread."""
    before_bytes = resident_bytes()
    collected = gc.collect()
    threadpool.apply(_trim)
    return Freed(collected, before_bytes, resident_bytes())


def _trim() -> None:
    import ctypes  # slow to import

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    """Return the resident memory of the process; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def memory_figures() -> dict[str, Any]:
    """Return counts of blocks, resident bytes and pauses of the last collections; 0 for figures only Go has.

    Python counts the blocks by pools, which takes 0.3 ms for five million.
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
    """Return the value that this part of the ordered values does not exceed; 0 without values."""
    if not ordered:
        return 0
    return ordered[min(len(ordered) - 1, int(part * len(ordered) + 0.5))]
