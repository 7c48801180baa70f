"""How the backlog of each channel develops: averages over the last half minute. Pure.

A depth alone says little: 100,000 messages are nothing for consumers that finish 50,000 a second, and an hour of delay
for others. What counts is whether more messages come than are finished, and how long the waiting ones will take.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

from nsqd_py.cluster.figures import MILLI, QUIET, ChannelCounts, Rates, Sum
from nsqd_py.cluster.model import Cluster

_SPAN_S = 30.0
_USUAL_SPAN_S = 600.0
# A channel without messages keeps its averages for this long, so that a pause of its traffic does not erase them.
_KEPT_S = 600.0
MOST_TRENDS = 5000
# A backlog grows if this part of the incoming messages is not finished. Less is noise.
_LEAST_GROWTH_PART = 0.02
_LEAST_DEPTH = 10
# A backlog that consumers finish within this time is none.
_LEAST_DRAIN_S = 10.0


@dataclass(slots=True)
class Trend:
    """Averages of the rates of a channel, per second. `usual_requeued` is the part of deliveries that is requeued."""

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

    def note(self, now_s: float, counts: ChannelCounts, rates: Rates) -> None:
        """Take the figures of a round."""
        passed_s, self.updated_s = max(0.0, now_s - self.updated_s), now_s
        self.rounds += 1
        self.depth = counts.depth
        if counts.depth or rates is not QUIET:
            self.busy_s = now_s
        part = max(1 / self.rounds, 1 - exp(-passed_s / _SPAN_S))
        self.came += part * (rates.messages / MILLI - self.came)
        self.finished += part * (rates.finished / MILLI - self.finished)
        self.requeued += part * (rates.requeued / MILLI - self.requeued)
        self.timed_out += part * (rates.timed_out / MILLI - self.timed_out)
        self.depth_growth += part * (rates.growth / MILLI - self.depth_growth)
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
    """The trends of all channels that have messages or traffic. Call `note_round` after each round."""

    def __init__(self) -> None:
        self._trends: dict[tuple[str, str], Trend] = {}

    def note_round(self, cluster: Cluster, now_s: float) -> None:
        for name, topic in cluster.topics.items():
            for channel_name, channel in topic.channels.items():
                self._note(name, channel_name, channel, now_s)
        for key in [key for key, trend in self._trends.items() if _is_over(trend, now_s)]:
            del self._trends[key]

    def _note(self, topic: str, name: str, channel: Sum, now_s: float) -> None:
        trend = self._trends.get((topic, name))
        if trend is None:
            is_idle = not channel.counts[0] and channel.rates is QUIET
            if is_idle or len(self._trends) >= MOST_TRENDS:
                return
            trend = self._trends[topic, name] = Trend(now_s, now_s, now_s)
        rates = QUIET if channel.rates is QUIET else Rates._make(channel.rates)
        trend.note(now_s, ChannelCounts._make(channel.counts), rates)

    def of(self, topic: str, channel: str) -> Trend | None:
        """Return the trend of a channel; None if nothing waits there, and nothing has moved for a while."""
        return self._trends.get((topic, channel))


def _is_over(trend: Trend, now_s: float) -> bool:
    """True if the channel has been deleted, or idle for long."""
    return trend.updated_s < now_s or trend.busy_s < now_s - _KEPT_S


NO_TRENDS = Trends()
