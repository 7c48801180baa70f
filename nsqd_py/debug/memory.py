"""The memory of this process under the names of Go's nsqd, and the return of unused memory to the system.

`Pauses` times the collections of the garbage collector.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NS_PER_US = 1000
_LAST_PAUSES = 128


# ---- pauses


class Pauses:
    """The durations of the garbage collections since `watch`. It costs 1 us a collection, and nothing in between."""

    def __init__(self) -> None:
        self._started_ns = 0
        self.total_ns = 0
        self.last_ns: deque[int] = deque(maxlen=_LAST_PAUSES)

    def watch(self) -> None:
        """Begin to time collections. Idempotent."""
        if self._on_phase not in gc.callbacks:
            gc.callbacks.append(self._on_phase)

    def _on_phase(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started_ns = time.perf_counter_ns()
            return
        pause_ns = time.perf_counter_ns() - self._started_ns
        self.total_ns += pause_ns
        self.last_ns.append(pause_ns)


# There is one collector in a process.
PAUSES = Pauses()


# ---- memory


def free_memory(threadpool: Any) -> str:
    """Collect garbage, which stops the process (30 ms a million objects), trim the heap in a thread, and report it."""
    before_bytes = resident_bytes()
    collected = gc.collect()
    threadpool.apply(_trim)
    return f"collected {collected} objects; resident {before_bytes} bytes before, {resident_bytes()} after\n"


def _trim() -> None:
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


def memory_statistics() -> dict[str, int]:
    """Return counts of blocks, resident bytes and pauses of the last collections; 0 for values only Go has.

    Python counts the blocks by pools, which takes 0.3 ms for five million.
    """
    pauses_ns = sorted(PAUSES.last_ns)
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


def percentile(part: float, ordered: Sequence[int]) -> int:
    """Return the value that this part of the ordered values does not exceed; 0 without values."""
    if not ordered:
        return 0
    index = int(part * len(ordered) + 0.5)
    return ordered[min(index, len(ordered) - 1)]
