"""The time from publish to FIN, by channel.

It is estimated with a DDSketch (Masson, Rim and Lee, VLDB 2019), with a relative error of 1 % for any distribution. A window
has two sketches, each for half of its time: when the newer is complete, the older is dropped, as in Go's nsqd.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nsqd_py.pqueues.alarms import Clock
from nsqd_py.pqueues.in_flight import Delivery

if TYPE_CHECKING:
    from ddsketch import DDSketch

RELATIVE_ACCURACY = 0.01


def _sketch() -> DDSketch:
    from ddsketch import DDSketch  # the extra `latency` brings it

    return DDSketch(RELATIVE_ACCURACY)


class LatencyWindow:
    """The latencies of the last `window_ns`, or of at least half of it. Times in ns."""

    __slots__ = ("_began_ns", "_half_ns", "_newer", "_older")

    def __init__(self, window_ns: int, now_ns: int) -> None:
        self._half_ns = max(1, window_ns // 2)
        self._began_ns = now_ns
        self._newer = _sketch()
        self._older = _sketch()

    def add(self, latency_ns: int, count: int, now_ns: int) -> None:
        """Add `count` messages with this latency: 1 us for any count."""
        self._move(now_ns)
        self._newer.add(latency_ns, count)

    def pour_into(self, sketch: DDSketch, now_ns: int) -> None:
        """Add the latencies of the window to a sketch."""
        self._move(now_ns)
        sketch.merge(self._older)
        sketch.merge(self._newer)

    def _move(self, now_ns: int) -> None:
        halves = (now_ns - self._began_ns) // self._half_ns
        if halves <= 0:
            return
        self._older = self._newer if halves == 1 else _sketch()
        self._newer = _sketch()
        self._began_ns += halves * self._half_ns


class LatencyMeter:
    """The latencies of one channel.

    `clock` moves the window; `wall_clock` is the clock of the messages' timestamps.
    """

    def __init__(self, percentiles: Sequence[float], window_ns: int, clock: Clock, wall_clock: Clock) -> None:
        self._percentiles = percentiles
        self._clock = clock
        self._wall_clock = wall_clock
        self._window = LatencyWindow(window_ns, clock())

    def finished(self, deliveries: Mapping[Delivery, int]) -> None:
        """Add finished messages, counted by delivery."""
        finished_ns = self._wall_clock()
        now_ns = self._clock()
        for delivery, count in deliveries.items():
            # The wall clock may have been set back since.
            self._window.add(max(0, finished_ns - delivery.timestamp_ns), count, now_ns)

    def statistics(self, others: Iterable[LatencyMeter] = ()) -> dict[str, Any]:
        """Return the number of messages and the percentiles of their latency in ns, merged with those of `others`."""
        now_ns = self._clock()
        sketch = _sketch()
        for meter in (self, *others):
            meter._window.pour_into(sketch, now_ns)
        return {
            "count": int(sketch.count),
            "percentiles": [
                {
                    "quantile": 1 if quantile == 1 else quantile,  # not 1.0, as in Go's JSON
                    "value": round(sketch.get_quantile_value(quantile) or 0.0),
                }
                for quantile in self._percentiles
            ],
        }
