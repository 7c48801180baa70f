"""What this process takes of memory, under the names that Go's nsqd gives to such figures."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from nsqd_py.debug.collector import COLLECTIONS

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NS_PER_US = 1000


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


def resident_bytes() -> int:
    """0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
