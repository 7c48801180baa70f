"""Counts and pauses of the garbage collector."""

from __future__ import annotations

import gc
import time
from collections import deque
from typing import Any

_PAUSES_KEPT = 128


class Collections:
    """The garbage collections of this process since `watch`. It costs 1 us a collection, and nothing in between."""

    def __init__(self) -> None:
        self._started_ns = 0
        self._longest_ns = [0] * len(gc.get_stats())
        self._total_ns = [0] * len(gc.get_stats())
        self._last: deque[dict[str, Any]] = deque(maxlen=_PAUSES_KEPT)
        self._frozen, self._frozen_until_s = 0, 0.0

    def watch(self) -> None:
        """Begin to time collections. Idempotent."""
        if self._on_phase not in gc.callbacks:
            gc.callbacks.append(self._on_phase)

    def _on_phase(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._started_ns = time.perf_counter_ns()
            return
        pause_ns = time.perf_counter_ns() - self._started_ns
        generation = info["generation"]
        self._total_ns[generation] += pause_ns
        self._longest_ns[generation] = max(self._longest_ns[generation], pause_ns)
        ended_s = time.time()
        self._last.append({"time": ended_s, "pause_ns": pause_ns, **info})

    @property
    def total_pause_ns(self) -> int:
        return sum(self._total_ns)

    @property
    def last_pauses_ns(self) -> list[int]:
        """The durations of the last collections, the latest last."""
        return [collection["pause_ns"] for collection in self._last]

    def report(self) -> dict[str, Any]:
        """Return the collector's settings, the counters of each generation, and the last pauses, the latest first."""
        counts, thresholds = gc.get_count(), gc.get_threshold()
        generations = [
            {
                "generation": number,
                "count": counts[number],
                "threshold": thresholds[number],
                **stats,
                "longest_pause_ns": self._longest_ns[number],
                "total_pause_ns": self._total_ns[number],
            }
            for number, stats in enumerate(gc.get_stats())
        ]
        return {
            "enabled": gc.isenabled(),
            "frozen": self._count_frozen(),
            "generations": generations,
            "last_pauses": list(reversed(self._last)),
        }

    def _count_frozen(self) -> int:
        """Return the number of frozen objects, at most 1 s old: Python counts them one by one, which takes 0.5 ms."""
        now_s = time.monotonic()
        if now_s >= self._frozen_until_s:
            self._frozen, self._frozen_until_s = gc.get_freeze_count(), now_s + 1.0
        return self._frozen


# There is one collector in a process.
COLLECTIONS = Collections()
