"""The history of all topics, channels and nsqds: rings of metrics in small steps and in minutes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isnan
from typing import Any, NamedTuple

from nsqadmin_py.cluster.metrics import Roles, channel_metrics_json, metrics_json, node_metrics_json
from nsqadmin_py.history.ring import Ring, mean
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.statistics import Latency
from nsqd_py.cluster.values import Pace

FINE_STEP_S = 2.0
COARSE_STEP_S = 60.0
FINE_RANGE_S = 3600.0
COARSE_RANGE_S = 24 * 3600.0
# Of the small lines in lists.
LINE_STEP_S = 20.0
LINE_RANGE_S = 600.0
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
Record = tuple[Key, Values, tuple[float, ...]]
Lists = list[list[float]]


class Rings(NamedTuple):
    """One metric: in small steps, and the mean of each minute."""

    fine: Ring
    coarse: Ring


class Series:
    """The metrics of one key. A metric has rings from its first value on."""

    __slots__ = ("rings", "quantiles")

    def __init__(self) -> None:
        self.rings: dict[str, Rings] = {}
        self.quantiles: tuple[float, ...] = ()

    @property
    def last(self) -> int:
        """Return the latest small step."""
        latest = (rings.fine.last for rings in self.rings.values())
        return max(latest, default=-1)


class History:
    """The history of all keys. `fine_step_s` is the poll interval if that is longer than 2 s."""

    def __init__(self, fine_step_s: float = FINE_STEP_S) -> None:
        self.fine_step_s = max(fine_step_s, FINE_STEP_S)
        self.series: dict[Key, Series] = {}
        self._coarse_step = -1
        self._unknown = Series()
        self._no_rings = self.new_rings()

    # ---- writing

    def record(self, time_s: float, metrics: Iterable[Record], pace: Pace = iter) -> None:
        """Record metrics at a time in s since the epoch, with the quantiles of their latencies."""
        self._end_minutes(time_s, pace)
        step = int(time_s / self.fine_step_s)
        for key, values, quantiles in pace(metrics):
            series = self.series.get(key)
            if series is None:
                if len(self.series) >= MOST_SERIES:
                    continue
                series = Series()
                self.series[key] = series
            if quantiles:
                series.quantiles = quantiles
            self._put(series, step, values)

    def _put(self, series: Series, step: int, values: Values) -> None:
        known = series.rings
        for name, value in values.items():
            rings = known.get(name)
            if rings is None:
                rings = self.new_rings()
                known[name] = rings
            fine = rings.fine
            if 1 < step - fine.last <= MOST_FILLED + 1 and fine.last >= 0:
                for missed in range(fine.last + 1, step):
                    fine.put(missed, value)
            fine.put(step, value)

    def _end_minutes(self, time_s: float, pace: Pace) -> None:
        """Put the mean of each finished minute into the coarse rings."""
        coarse_step = int(time_s / COARSE_STEP_S)
        if self._coarse_step >= 0 and coarse_step > self._coarse_step:
            self._end_minute(self._coarse_step, pace)
            self._drop_old(coarse_step)
        self._coarse_step = max(self._coarse_step, coarse_step)

    def _end_minute(self, coarse_step: int, pace: Pace) -> None:
        begin = int(coarse_step * COARSE_STEP_S / self.fine_step_s)
        end = int((coarse_step + 1) * COARSE_STEP_S / self.fine_step_s)
        for series in pace(self.series.values()):
            for rings in series.rings.values():
                values = rings.fine.read(begin, end)
                average = mean(values)
                if not isnan(average):
                    rings.coarse.put(coarse_step, average)

    def _drop_old(self, coarse_step: int) -> None:
        """Drop the series of what has been gone for a day."""
        oldest = (coarse_step * COARSE_STEP_S - COARSE_RANGE_S) / self.fine_step_s
        for key, series in list(self.series.items()):
            if series.last < oldest:
                del self.series[key]

    def new_rings(self) -> Rings:
        """Return empty rings for one metric."""
        fine = Ring(int(FINE_RANGE_S / self.fine_step_s))
        coarse = Ring(int(COARSE_RANGE_S / COARSE_STEP_S))
        return Rings(fine, coarse)

    # ---- reading

    def read(
        self, key: Key, metrics: Iterable[str], range_s: float, now_s: float
    ) -> tuple[float, list[float], Lists]:
        """Return the step in s, times in s since the epoch, and the values of each metric; NaN is unknown."""
        is_fine = range_s <= FINE_RANGE_S
        step_s = self.fine_step_s if is_fine else COARSE_STEP_S
        end = int(now_s / step_s)
        if is_fine:
            end += 1
        begin = end - max(1, int(min(range_s, COARSE_RANGE_S) / step_s))
        lists = []
        for metric in metrics:
            rings = self._rings(key, metric)
            ring = rings.fine if is_fine else rings.coarse
            lists.append(ring.read(begin, end))
        times_s = [step * step_s for step in range(begin, end)]
        return step_s, times_s, lists

    def lines(self, keys: Iterable[Key], metric: str, now_s: float, pace: Pace = iter) -> tuple[float, Lists]:
        """Return the step in s, and the means of a metric over the last LINE_RANGE_S by key; NaN is unknown.

        A mean always covers the same small steps, so that a line moves to the left without flickering.
        """
        width = max(1, int(LINE_STEP_S / self.fine_step_s))
        step_s = width * self.fine_step_s
        count = max(1, int(LINE_RANGE_S / step_s))
        begin = (int(now_s / step_s) + 1 - count) * width
        lines = []
        for key in pace(list(keys)):
            values = self._rings(key, metric).fine.read(begin, begin + width * count)
            starts = range(0, len(values), width)
            lines.append([mean(values[start : start + width]) for start in starts])
        return step_s, lines

    def quantiles(self, key: Key) -> tuple[float, ...]:
        return self.series.get(key, self._unknown).quantiles

    def _rings(self, key: Key, metric: str) -> Rings:
        """Return the rings of a metric; empty ones if it is unknown."""
        series = self.series.get(key, self._unknown)
        return series.rings.get(metric, self._no_rings)

    @property
    def size_bytes(self) -> int:
        """Return the memory of the values in bytes."""
        all_rings = (rings for series in self.series.values() for rings in series.rings.values())
        return sum(rings.fine.size_bytes + rings.coarse.size_bytes for rings in all_rings)


def records(cluster: Cluster) -> Iterator[Record]:
    """Yield a record for the cluster, and one for each topic, channel and nsqd whose metrics are known."""
    yield _record(Key(), metrics_json(cluster.totals))
    for name, topic in cluster.topics.items():
        yield _record(Key(name), metrics_json(topic.totals), topic.latency)
        for channel_name, channel in topic.channels.items():
            yield _record(Key(name, channel_name), channel_metrics_json(channel), channel.latency)
    roles = Roles(cluster)
    for address, node in cluster.nodes.items():
        if node.is_whole:
            metrics = node_metrics_json(node) | roles.json_of(node)
            yield _record(Key(node=address), metrics, node.latency)


def _record(key: Key, metrics: Mapping[str, Any], latency: Latency = ()) -> Record:
    values = {}
    for name in (*METRICS, *LAGS):
        value = metrics.get(name)
        if value is not None:
            values[name] = value
    for name, (_, value_ns) in zip(LATENCIES, latency, strict=False):
        values[name] = value_ns
    quantiles = tuple(quantile for quantile, _ in latency[:MOST_QUANTILES])
    return key, values, quantiles
