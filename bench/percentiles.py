"""Latencies of an open loop, and their percentiles.

A closed loop waits for an answer before it sends again, so a server that stalls for a second delays one request where
users would have sent a thousand: the measurement leaves out what was slow (coordinated omission). Here each request
has an instant at which it should leave, whatever was answered by then, and its latency counts from that instant. See
G. Tene, "How NOT to Measure Latency".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


@dataclass(frozen=True, slots=True)
class Schedule:
    """Evenly spaced instants, in ns: the requests `first`, `first + step`, ... of all that start at `start_ns`."""

    start_ns: int
    rate_per_s: float
    first: int = 0
    step: int = 1

    def intended_ns(self, number: int) -> int:
        """Return the instant at which request `number` of these should leave."""
        return self.start_ns + int((self.first + number * self.step) * 1e9 / self.rate_per_s)

    def due(self, now_ns: int) -> int:
        """Return how many of these requests should have left by now."""
        passed = (now_ns - self.start_ns) * self.rate_per_s / 1e9 - self.first
        return max(int(passed / self.step) + 1, 0) if passed >= 0 else 0


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed (nearest rank). Raise ValueError if
    there is none."""
    if not ordered:
        raise ValueError("no values")
    rank = math.ceil(share * len(ordered))
    return ordered[max(rank, 1) - 1]


def summary_ms(latencies_ns: Sequence[int]) -> dict[str, float]:
    """Return the percentiles of `SHARES` in ms."""
    ordered = sorted(latencies_ns)
    return {f"{name}_ms": percentile(ordered, share) / 1e6 for name, share in SHARES.items()}
