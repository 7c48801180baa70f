"""How long messages take from publish to FIN: percentiles over the last while.

The figures are those of a DDSketch (Masson, Rim and Lee, VLDB 2019), right to 1 %, whatever their distribution.
A window is two sketches of half its time each: when the newer is full, the older is dropped, as in Go's nsqd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ddsketch import DDSketch

from nsqd_py.queue.in_flight import Delivery

RELATIVE_ACCURACY = 0.01


class LatencyWindow:
    """Latencies of the last window, or of half of it at least. Times in ns."""

    __slots__ = ("_began_ns", "_half_ns", "_newer", "_older")

    def __init__(self, window_ns: int, now_ns: int) -> None:
        self._half_ns = max(1, window_ns // 2)
        self._began_ns = now_ns
        self._newer = DDSketch(RELATIVE_ACCURACY)
        self._older = DDSketch(RELATIVE_ACCURACY)

    def add(self, latency_ns: int, count: int, now_ns: int) -> None:
        """`count` messages took this long: 1 us, however many they are."""
        self._move(now_ns)
        self._newer.add(latency_ns, count)

    def pour_into(self, sketch: DDSketch, now_ns: int) -> None:
        """Add all that is in the window to a sketch."""
        self._move(now_ns)
        sketch.merge(self._older)
        sketch.merge(self._newer)

    def _move(self, now_ns: int) -> None:
        halves = (now_ns - self._began_ns) // self._half_ns
        if halves <= 0:
            return
        self._older = self._newer if halves == 1 else DDSketch(RELATIVE_ACCURACY)
        self._newer = DDSketch(RELATIVE_ACCURACY)
        self._began_ns += halves * self._half_ns


class LatencyMeter:
    """The latencies of one channel.

    `clock` moves the window; `wall_clock` is the one that gave the messages their timestamps.
    """

    def __init__(
        self,
        percentiles: Sequence[float],
        window_ns: int,
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
    ) -> None:
        self._percentiles = percentiles
        self._clock = clock
        self._wall_clock = wall_clock
        self._window = LatencyWindow(window_ns, clock())

    def finished(self, deliveries: Mapping[Delivery, int]) -> None:
        """So many messages of each are finished now. What was published and delivered together is added together."""
        finished_ns = self._wall_clock()
        now_ns = self._clock()
        for delivery, count in deliveries.items():
            # The wall clock may have been set back since.
            self._window.add(max(0, finished_ns - delivery.timestamp_ns), count, now_ns)

    def figures(self, others: Iterable[LatencyMeter] = ()) -> dict[str, Any]:
        """How many messages, and the percentiles of what they took, in ns; together with those of other meters."""
        now_ns = self._clock()
        sketch = DDSketch(RELATIVE_ACCURACY)
        for meter in (self, *others):
            meter._window.pour_into(sketch, now_ns)
        return {
            "count": int(sketch.count),
            "percentiles": [
                {"quantile": quantile, "value": round(sketch.get_quantile_value(quantile) or 0.0)}
                for quantile in self._percentiles
            ],
        }
