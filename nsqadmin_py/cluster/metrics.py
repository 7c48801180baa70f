"""What views, problems and the history share: the form of a view, metrics, and the state of an nsqd. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nsqd_py.cluster.model import Node
from nsqd_py.cluster.statistics import MILLI, ChannelCounts, Latency, Numbers, Part, Rates, Sum, TopicCounts

Json = dict[str, Any]


class BadViewQuery(ValueError):
    """The query is not valid; str(error) is the message of the answer."""


class NotKnown(LookupError):
    """The topic, channel or node does not exist; str(error) is the message of the answer."""


@dataclass(slots=True)
class View:
    """What a page shows: metrics of the whole, and rows by key, in their order."""

    head: Json
    rows: dict[str, Json] = field(default_factory=dict)


RATES = ("message_rate", "finish_rate", "requeue_rate", "timeout_rate")


def hide_rates(view: View) -> None:
    """Replace all rates by null, which means unknown."""
    for row in (view.head, *view.rows.values()):
        row.update((name, None) for name in RATES if name in row)


def metrics_json(of_topic: Numbers, topic_rates: Numbers, of_channels: Numbers, channel_rates: Numbers) -> Json:
    """Return the metrics of a topic and its channels, or of several together. The depth is that of all of them."""
    own, counts, rates = TopicCounts._make(of_topic), ChannelCounts._make(of_channels), Rates._make(channel_rates)
    return {
        "depth": own.depth + counts.depth,
        "topic_depth": own.depth,
        "backend_depth": own.backend_depth + counts.backend_depth,
        "in_flight": counts.in_flight,
        "deferred": counts.deferred,
        "messages": own.messages,
        "requeued": counts.requeued,
        "timed_out": counts.timed_out,
        "clients": counts.clients,
        "message_rate": topic_rates[0] / MILLI,
        "finish_rate": rates.finished / MILLI,
        "requeue_rate": rates.requeued / MILLI,
        "timeout_rate": rates.timed_out / MILLI,
    }


def channel_metrics_json(counts: Numbers, rates: Numbers) -> Json:
    """Return the metrics of a channel, over all nsqds or on one."""
    return metrics_json(TopicCounts(0, 0, ChannelCounts._make(counts).messages), rates, counts, rates)


def node_metrics_json(node: Node) -> Json:
    """Return the metrics of an nsqd, and how many topics and channels it has."""
    counts = {"topics": len(node.topics), "channels": sum(len(part.channels) for part in node.topics.values())}
    return counts | metrics_json(node.of_topics.counts, node.of_topics.rates, node.of_channels.counts, node.of_channels.rates)


def latency_json(latency: Latency) -> list[Json]:
    return [{"quantile": quantile, "ns": value_ns} for quantile, value_ns in latency]


def oldest_json(rows: Iterable[Sum | Part]) -> float | None:
    """Return the publish time of the oldest waiting message, in s since the epoch; None if none is known."""
    oldest_ns = min((row.oldest_ns for row in rows if row.oldest_ns), default=0)
    return oldest_ns / 1e9 if oldest_ns else None


# ---- nsqds

# An nsqd whose answer takes this long is slow. The poller marks it as late earlier.
_SLOW_AFTER_S = 5.0

# FAILED is also the state of a standby that does not answer, see `nsqd_py.cluster.roles`.
OK, SLOW, FAILED, NEW, GONE = "ok", "slow", "failed", "new", "gone"


def state_of(node: Node, now_s: float) -> str:
    """Return ok, slow (its metrics are old), failed (an error, or no answer for long) or new (not asked yet)."""
    age_s = node.age_s(now_s)
    if node.failure or (age_s is not None and not node.is_whole):  # its metrics are in no sum any more
        return FAILED
    if age_s is None:
        return SLOW if node.is_slow else NEW
    is_awaited = node.answered_s is not None and node.asked_s > node.answered_s
    return SLOW if node.is_slow or (is_awaited and now_s - node.asked_s > _SLOW_AFTER_S) else OK
