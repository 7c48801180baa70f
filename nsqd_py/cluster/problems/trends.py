"""The trend of the backlog of each channel: means of the last half minute. Pure.

A depth alone says little: 100,000 messages are nothing for consumers that finish 50,000 a second, and an hour of delay
for others. What counts is whether more messages come than are finished, and how long the waiting ones will take.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nsqd_py.cluster.counts import Rates
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.statistics import MILLI, QUIET, ChannelRow
from nsqd_py.cluster.values import Pace

_SPAN_S = 30.0
# A channel without messages keeps its averages for this long, so that a pause of its traffic does not erase them.
_REMEMBERED_S = 600.0
MOST_TRENDS = 5000
# The weight of the first round, in s: the time before it is not known.
_FIRST_S = 1.0
_NO_RATES = (0.0,) * len(Rates._fields)
_DEPTH = 0  # of ChannelCounts
_TIMED_OUT = Rates._fields.index("timed_out")
# A backlog grows if this part of the incoming messages is not finished. Less is noise.
_LEAST_GROWTH_PART = 0.02
_LEAST_DEPTH = 10
# It grows on an nsqd that has at least this part of what was added; others hardly contribute.
_LEAST_NODE_PART = 0.1
# Time-outs are a problem when they go on for this long. Those of a consumer that was restarted, or of an nsqd that goes on
# after a stop, come at once; a longer pause between two ends the episode.
_TIMING_OUT_S = 15.0
_TIME_OUT_PAUSE_S = 90.0
# A backlog that consumers finish within this time is none.
_LEAST_DRAIN_S = 10.0


@dataclass(slots=True)
class Trend:
    """Mean rates of a channel, per second.

    The means are those of the current and the last span of 15 s, so that a burst is forgotten half a minute later.
    """

    updated_s: float
    busy_s: float
    rounds: int = 0
    depth: int = 0
    came: float = 0.0
    finished: float = 0.0
    requeued: float = 0.0
    timed_out: float = 0.0
    depth_growth: float = 0.0
    _depths: dict[str, int] = field(default_factory=dict)  # by nsqd, when the current span began
    _last_depths: dict[str, int] = field(default_factory=dict)  # when the span before began
    _first_time_out_s: float = 0.0  # of the present episode
    _last_time_out_s: float = 0.0
    _sums: tuple[float, ...] = _NO_RATES  # of the current span: each rate times the time for which it held
    _sums_s: float = 0.0
    _last: tuple[float, ...] = _NO_RATES  # of the span before
    _last_s: float = 0.0

    def note(self, now_s: float, row: ChannelRow) -> None:
        """Take the metrics of a round."""
        passed_s = max(0.0, now_s - self.updated_s)
        self.updated_s = now_s
        self.rounds += 1
        self.depth = row.counts[_DEPTH]
        rates = row.rates
        if self.depth or any(rates):
            self.busy_s = now_s
        if rates[_TIMED_OUT]:
            if not self._first_time_out_s or now_s - self._last_time_out_s > _TIME_OUT_PAUSE_S:
                self._first_time_out_s = now_s
            self._last_time_out_s = now_s
        if self._sums_s >= _SPAN_S / 2:
            is_recent = self._sums_s < _SPAN_S
            self._last = self._sums if is_recent else _NO_RATES
            self._last_s = self._sums_s if is_recent else 0.0
            self._sums = _NO_RATES
            self._sums_s = 0.0
            self._last_depths = self._depths if is_recent else {}
            self._depths = _depths_of(row)
        elif self.rounds == 1:
            self._depths = _depths_of(row)
        weight_s = passed_s or _FIRST_S
        self._sums_s += weight_s
        pairs = zip(self._sums, rates, strict=True)
        self._sums = tuple(old + weight_s * new for old, new in pairs)
        total_s = MILLI * (self._sums_s + self._last_s)
        self.came, self.requeued, self.timed_out, self.finished, self.depth_growth = (
            (new + old) / total_s for new, old in zip(self._sums, self._last, strict=True)
        )

    @property
    def requeued_part(self) -> float:
        """The part of all deliveries that consumers requeued."""
        return _part(self.requeued, self.finished)

    @property
    def timed_out_part(self) -> float:
        """The part of all deliveries that timed out."""
        return _part(self.timed_out, self.finished)

    @property
    def is_timing_out(self) -> bool:
        """True if time-outs go on, and are not only those of one moment."""
        return self._last_time_out_s - self._first_time_out_s >= _TIMING_OUT_S

    @property
    def growth(self) -> float:
        """Messages per second by which the backlog grows.

        Messages that become due, or that a seek brings back, make the depth grow; they are not new.
        """
        return min(self.depth_growth, self.came - self.finished)

    @property
    def is_growing(self) -> bool:
        is_backlog = self.depth >= max(_LEAST_DEPTH, self.finished * _LEAST_DRAIN_S)
        if self.rounds <= 1:
            return False
        return is_backlog and self.growth > max(0.0, _LEAST_GROWTH_PART * self.came)

    def grows_on(self, row: ChannelRow) -> list[str]:
        """Return the nsqds on which the backlog has grown since the span before, those with most of it first."""
        before = self._last_depths or self._depths
        grown = {}
        for node, depth in _depths_of(row).items():
            growth = depth - before.get(node, 0)
            if growth > 0:
                grown[node] = growth
        least = _LEAST_NODE_PART * sum(grown.values())
        nodes = [node for node, growth in grown.items() if growth >= least]
        return sorted(nodes, key=lambda node: (-grown[node], node))

    @property
    def drain_s(self) -> float | None:
        """The time until nothing waits if all continues like this; None if that never happens."""
        if self.depth <= self.finished * _LEAST_DRAIN_S:  # no backlog: new messages are finished as soon
            if self.depth:
                return self.depth / self.finished
            return 0.0
        shrinking = self.finished - self.came
        if shrinking > _LEAST_GROWTH_PART * self.came and shrinking > 0:
            return self.depth / shrinking
        return None

    @property
    def work_s(self) -> float | None:
        """The time that the consumers need for what waits now, if nothing more comes; None without consumers."""
        if self.finished > 0:
            return self.depth / self.finished
        return None


def _depths_of(row: ChannelRow) -> dict[str, int]:
    """Return how many messages wait on each nsqd on which some do."""
    depths = {node: part.counts[_DEPTH] for node, part in row.parts.items()}
    return {node: depth for node, depth in depths.items() if depth}


def _part(number: float, others: float) -> float:
    if number > 0:
        return number / (number + others)
    return 0.0


class Trends:
    """The trends of all channels that have messages or traffic. Call `note_round` after each round."""

    def __init__(self) -> None:
        self._trends: dict[tuple[str, str], Trend] = {}

    def note_round(self, cluster: Cluster, now_s: float, pace: Pace = iter) -> None:
        for name, topic in pace(cluster.topics.items()):
            for channel_name, channel in topic.channels.items():
                self._note(name, channel_name, channel, now_s)
        for key, trend in list(self._trends.items()):
            is_deleted = trend.updated_s < now_s
            if is_deleted or trend.busy_s < now_s - _REMEMBERED_S:
                del self._trends[key]

    def _note(self, topic: str, name: str, channel: ChannelRow, now_s: float) -> None:
        trend = self._trends.get((topic, name))
        if trend is None:
            is_idle = not channel.counts[0] and channel.rates is QUIET
            if is_idle or len(self._trends) >= MOST_TRENDS:
                return
            trend = Trend(now_s, now_s)
            self._trends[topic, name] = trend
        trend.note(now_s, channel)

    def of(self, topic: str, channel: str) -> Trend | None:
        """Return the trend of a channel; None if nothing waits there, and nothing has moved for a while."""
        return self._trends.get((topic, channel))

    def drain_s(self, topic: str, channel: str) -> float | None:
        """Return the time until nothing waits; None if that never happens."""
        trend = self.of(topic, channel)
        return 0.0 if trend is None else trend.drain_s
