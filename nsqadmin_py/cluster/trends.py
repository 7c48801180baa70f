"""How the backlog of each channel develops: means of the last half minute. Pure.

A depth alone says little: 100,000 messages are nothing for consumers that finish 50,000 a second, and an hour of delay
for others. What counts is whether more messages come than are finished, and how long the waiting ones will take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, inf

from nsqd_py.cluster.figures import MILLI, QUIET, ChannelRow, Part, Rates
from nsqd_py.cluster.model import Cluster

_SPAN_S = 30.0
_USUAL_SPAN_S = 600.0
# A channel without messages keeps its averages for this long, so that a pause of its traffic does not erase them.
_KEPT_S = 600.0
MOST_TRENDS = 5000
# A part of a backlog has a trend of its own if it is at least this share of the whole.
_LEAST_SHARE = 0.1
# The weight of the first round, in s: the time before it is not known.
_FIRST_S = 1.0
_NO_RATES = (0.0,) * len(Rates._fields)
_DEPTH = 0  # of ChannelCounts
# A backlog grows if this part of the incoming messages is not finished. Less is noise.
_LEAST_GROWTH_PART = 0.02
_LEAST_DEPTH = 10
# A backlog that consumers finish within this time is none.
_LEAST_DRAIN_S = 10.0


@dataclass(slots=True)
class Trend:
    """Mean rates of a channel, per second. `usual_requeued` is the part of deliveries that is requeued.

    The means are those of the current and the last span of 15 s, so that a burst is forgotten half a minute later.
    """

    began_s: float
    updated_s: float
    busy_s: float
    rounds: int = 0
    depth: int = 0
    came: float = 0.0
    finished: float = 0.0
    requeued: float = 0.0
    timed_out: float = 0.0
    depth_growth: float = 0.0
    usual_requeued: float = 0.0
    _sums: tuple[float, ...] = _NO_RATES  # of the current span: each rate times the time for which it held
    _sums_s: float = 0.0
    _last: tuple[float, ...] = _NO_RATES  # of the span before
    _last_s: float = 0.0

    def note(self, now_s: float, row: ChannelRow | Part) -> None:
        """Take the figures of a round."""
        passed_s, self.updated_s = max(0.0, now_s - self.updated_s), now_s
        self.rounds += 1
        self.depth, rates = row.counts[_DEPTH], row.rates
        if self.depth or any(rates):
            self.busy_s = now_s
        if self._sums_s >= _SPAN_S / 2:
            is_recent = self._sums_s < _SPAN_S
            self._last, self._last_s = (self._sums, self._sums_s) if is_recent else (_NO_RATES, 0.0)
            self._sums, self._sums_s = _NO_RATES, 0.0
        weight_s = passed_s or _FIRST_S
        self._sums_s += weight_s
        self._sums = tuple(old + weight_s * new for old, new in zip(self._sums, rates, strict=True))
        total_s = MILLI * (self._sums_s + self._last_s)
        self.came, self.requeued, self.timed_out, self.finished, self.depth_growth = (
            (new + old) / total_s for new, old in zip(self._sums, self._last, strict=True)
        )
        self.usual_requeued += (1 - exp(-passed_s / _USUAL_SPAN_S)) * (self.requeued_part - self.usual_requeued)

    @property
    def requeued_part(self) -> float:
        """The part of all deliveries that consumers requeued."""
        return _part(self.requeued, self.finished)

    @property
    def is_usual_known(self) -> bool:
        """True if the channel has been observed for so long that `usual_requeued` means something."""
        return self.updated_s - self.began_s >= _USUAL_SPAN_S / 2

    @property
    def timed_out_part(self) -> float:
        """The part of all deliveries that timed out."""
        return _part(self.timed_out, self.finished)

    @property
    def growth(self) -> float:
        """Messages per second by which the backlog grows.

        Messages that become due, or that a seek brings back, make the depth grow; they are not new.
        """
        return min(self.depth_growth, self.came - self.finished)

    @property
    def is_growing(self) -> bool:
        is_backlog = self.depth >= max(_LEAST_DEPTH, self.finished * _LEAST_DRAIN_S)
        return self.rounds > 1 and is_backlog and self.growth > max(0.0, _LEAST_GROWTH_PART * self.came)

    @property
    def drain_s(self) -> float | None:
        """The time until nothing waits if all continues like this; None if that never happens."""
        if self.depth <= self.finished * _LEAST_DRAIN_S:  # no backlog: new messages are finished as soon
            return self.depth / self.finished if self.depth else 0.0
        shrinking = self.finished - self.came
        return self.depth / shrinking if shrinking > _LEAST_GROWTH_PART * self.came and shrinking > 0 else None

    @property
    def work_s(self) -> float | None:
        """The time that the consumers need for what waits now, if nothing more comes; None without consumers."""
        return self.depth / self.finished if self.finished > 0 else None


def _part(share: float, others: float) -> float:
    return share / (share + others) if share > 0 else 0.0


class Trends:
    """The trends of all channels that have messages or traffic, and those of the large parts of a backlog on one of
    several nsqds. Call `note_round` after each round.
    """

    def __init__(self) -> None:
        self._trends: dict[tuple[str, str], Trend] = {}
        self._parts: dict[tuple[str, str], dict[str, Trend]] = {}  # keyed by nsqd

    def note_round(self, cluster: Cluster, now_s: float) -> None:
        for name, topic in cluster.topics.items():
            for channel_name, channel in topic.channels.items():
                self._note(name, channel_name, channel, now_s)
        for key in [key for key, trend in self._trends.items() if _is_over(trend, now_s)]:
            del self._trends[key]
            self._parts.pop(key, None)

    def _note(self, topic: str, name: str, channel: ChannelRow, now_s: float) -> None:
        trend = self._trends.get((topic, name))
        if trend is None:
            is_idle = not channel.counts[0] and channel.rates is QUIET
            if is_idle or len(self._trends) >= MOST_TRENDS:
                return
            trend = self._trends[topic, name] = Trend(now_s, now_s, now_s)
        trend.note(now_s, channel)
        if channel.counts[_DEPTH] < _LEAST_DEPTH or len(channel.parts) < 2:
            self._parts.pop((topic, name), None)
            return
        before = self._parts.get((topic, name), {})
        least = channel.counts[_DEPTH] * _LEAST_SHARE
        found = self._parts[topic, name] = {}
        for address, part in channel.parts.items():
            if part.counts[_DEPTH] >= least:
                found[address] = before.get(address) or Trend(now_s, now_s, now_s)
                found[address].note(now_s, part)

    def of(self, topic: str, channel: str) -> Trend | None:
        """Return the trend of a channel; None if nothing waits there, and nothing has moved for a while."""
        return self._trends.get((topic, channel))

    def parts(self, topic: str, channel: str) -> Iterator[tuple[str, Trend]]:
        """Yield (address, trend) of each nsqd with a large part of a backlog; nothing if only one has the channel."""
        yield from self._parts.get((topic, channel), {}).items()

    def drain(self, topic: str, channel: str) -> tuple[float | None, str]:
        """Return the time until nothing waits on any nsqd, None if that never happens, and the last nsqd, if one has a
        backlog that takes longer than that of the channel as a whole.
        """
        trend = self.of(topic, channel)
        if trend is None:
            return 0.0, ""
        found: list[tuple[float, str]] = [(inf if trend.drain_s is None else trend.drain_s, "")]
        found += [(inf if part.drain_s is None else part.drain_s, node) for node, part in self.parts(topic, channel)]
        drain_s, node = max(found, key=lambda one: one[0])
        return None if drain_s == inf else drain_s, node


def _is_over(trend: Trend, now_s: float) -> bool:
    """True if the channel has been deleted, or idle for long."""
    return trend.updated_s < now_s or trend.busy_s < now_s - _KEPT_S


NO_TRENDS = Trends()
