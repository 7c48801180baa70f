"""The history of a cluster: rings for each figure of each topic, channel and nsqd. Pure.

300 topics with 3 channels on 120 nsqds have 1,320 series of seven figures: at most 230 MB if each of them changes all
the time, and usually a third of that. There are never more than `MOST_SERIES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import NamedTuple

from nsqadmin_py.history.rings import Ring

FINE_STEP_S = 2.0
COARSE_STEP_S = 60.0
FINE_RANGE_S = 3600.0
COARSE_RANGE_S = 24 * 3600.0
MOST_SERIES = 5000
MOST_QUANTILES = 3
# A gap of up to this many small steps between two rounds is filled, so that charts have no holes.
MOST_FILLED = 5

METRICS = ("depth", "in_flight", "deferred", "message_rate", "finish_rate", "requeue_rate", "timeout_rate")
# Latencies by rank: the highest quantile that nsqd measures, and the next ones; in ns.
LATENCIES = tuple(f"latency_{rank}" for rank in range(MOST_QUANTILES))
# How far a standby is behind; of a primary, that of the standby that is behind most.
LAGS = ("lag_messages", "lag_bytes", "lag_s")


class Key(NamedTuple):
    """Names a topic, a channel or an nsqd; all fields are empty for the whole cluster."""

    topic: str = ""
    channel: str = ""
    node: str = ""


Values = Mapping[str, float]


class Rings(NamedTuple):
    """One figure: in small steps, and the mean, lowest and highest value of each minute."""

    fine: Ring
    coarse: Ring
    low: Ring
    high: Ring


class Series:
    """The figures of one key. A figure has rings from its first value on."""

    __slots__ = ("rings", "quantiles")

    def __init__(self) -> None:
        self.rings: dict[str, Rings] = {}
        self.quantiles: tuple[float, ...] = ()

    @property
    def last(self) -> int:
        """Return the latest small step."""
        return max((rings.fine.last for rings in self.rings.values()), default=-1)


class History:
    """The history of all keys. `fine_step_s` is the poll interval if nsqadmin asks less often than every 2 s."""

    def __init__(self, fine_step_s: float = FINE_STEP_S) -> None:
        self.fine_step_s = max(fine_step_s, FINE_STEP_S)
        self.fine_capacity = int(FINE_RANGE_S / self.fine_step_s)
        self.coarse_capacity = int(COARSE_RANGE_S / COARSE_STEP_S)
        self.series: dict[Key, Series] = {}
        self._coarse_step = -1

    # ---- writing

    def record(self, time_s: float, figures: Iterable[tuple[Key, Values, tuple[float, ...]]]) -> None:
        """Record figures at a time in s since the epoch, with the quantiles of their latencies."""
        self._end_minutes(time_s)
        step = int(time_s / self.fine_step_s)
        for key, values, quantiles in figures:
            series = self.series.get(key)
            if series is None:
                if len(self.series) >= MOST_SERIES:
                    continue
                series = self.series[key] = Series()
            if quantiles:
                series.quantiles = quantiles
            self._put(series, step, values)

    def _put(self, series: Series, step: int, values: Values) -> None:
        known = series.rings
        for name, value in values.items():
            rings = known.get(name)
            if rings is None:
                rings = known[name] = self.new_rings()
            fine = rings.fine
            if 1 < step - fine.last <= MOST_FILLED + 1 and fine.last >= 0:
                for missed in range(fine.last + 1, step):
                    fine.put(missed, value)
            fine.put(step, value)

    def _end_minutes(self, time_s: float) -> None:
        """Put the mean, lowest and highest value of each finished minute into the coarse rings."""
        coarse_step = int(time_s / COARSE_STEP_S)
        if self._coarse_step >= 0 and coarse_step > self._coarse_step:
            self._end_minute(self._coarse_step)
            self._drop_old(coarse_step)
        self._coarse_step = max(self._coarse_step, coarse_step)

    def _end_minute(self, coarse_step: int) -> None:
        begin = int(coarse_step * COARSE_STEP_S / self.fine_step_s)
        end = int((coarse_step + 1) * COARSE_STEP_S / self.fine_step_s)
        for series in self.series.values():
            for rings in series.rings.values():
                average, low, high = rings.fine.summary(begin, end)
                if not isnan(average):
                    rings.coarse.put(coarse_step, average)
                    rings.low.put(coarse_step, low)
                    rings.high.put(coarse_step, high)

    def _drop_old(self, coarse_step: int) -> None:
        """Drop the series of what has been gone for a day."""
        oldest = (coarse_step - self.coarse_capacity) * COARSE_STEP_S / self.fine_step_s
        for key in [key for key, series in self.series.items() if series.last < oldest]:
            del self.series[key]

    def new_rings(self) -> Rings:
        """Return empty rings for one figure."""
        return Rings(Ring(self.fine_capacity), *(Ring(self.coarse_capacity) for _ in range(3)))

    # ---- reading

    def read(
        self, key: Key, metrics: Iterable[str], range_s: float, now_s: float
    ) -> tuple[float, list[float], list[list[float]]]:
        """Return the step in s, times in s since the epoch, and a list of values for each metric; NaN is unknown."""
        is_fine = range_s <= FINE_RANGE_S
        step_s = self.fine_step_s if is_fine else COARSE_STEP_S
        end = int(now_s / step_s) + (1 if is_fine else 0)
        begin = end - max(1, int(min(range_s, COARSE_RANGE_S) / step_s))
        lists = [self._ring(key, metric, is_fine).read(begin, end) for metric in metrics]
        return step_s, [step * step_s for step in range(begin, end)], lists

    def extremes(self, key: Key, metrics: Iterable[str], times: Sequence[float]) -> tuple[list[list[float]], list[list[float]]]:
        """Return the lowest and highest values of each metric in these minutes, which `read` returned."""
        begin = int(times[0] / COARSE_STEP_S) if times else 0
        found = [self._rings(key, metric) for metric in metrics]
        low, high = (
            [(Ring(1) if rings is None else rings[place]).read(begin, begin + len(times)) for rings in found]
            for place in (Rings._fields.index("low"), Rings._fields.index("high"))
        )
        return low, high

    def lines(
        self, keys: Iterable[Key], metric: str, range_s: float, points: int, now_s: float
    ) -> tuple[float, list[list[float]]]:
        """Return the step in s, and for each key at most `points` means of one metric up to now; NaN is unknown.

        A mean always covers the same steps, so that a line moves to the left without flickering.
        """
        is_fine = range_s <= FINE_RANGE_S
        step_s = self.fine_step_s if is_fine else COARSE_STEP_S
        steps = max(1, int(min(range_s, COARSE_RANGE_S) / step_s))
        width = -(-steps // points)
        count = -(-steps // width)
        begin = (int(now_s / step_s) // width + 1 - count) * width
        rings = (self._ring(key, metric, is_fine) for key in keys)
        return width * step_s, [ring.means(begin, width, count) for ring in rings]

    def _ring(self, key: Key, metric: str, is_fine: bool) -> Ring:
        """Return the ring of a figure; an empty one if it is not recorded."""
        rings = self._rings(key, metric)
        return Ring(1) if rings is None else rings.fine if is_fine else rings.coarse

    def _rings(self, key: Key, metric: str) -> Rings | None:
        series = self.series.get(key)
        return series.rings.get(metric) if series is not None else None

    def quantiles(self, key: Key) -> tuple[float, ...]:
        series = self.series.get(key)
        return series.quantiles if series is not None else ()

    @property
    def size_bytes(self) -> int:
        """Return the memory of the values in bytes."""
        all_rings = (ring for series in self.series.values() for rings in series.rings.values() for ring in rings)
        return sum(ring.size_bytes for ring in all_rings)
