"""The form of a view, and the metrics and roles that views, problems and the history share. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nsqd_py.cluster.counts import ChannelCounts, Rates, TopicCounts
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.problems.of_standbys import of_standbys
from nsqd_py.cluster.problems.of_stores import of_store
from nsqd_py.cluster.problems.states import FAILED
from nsqd_py.cluster.roles import KnownStandby, Lag, Pair
from nsqd_py.cluster.statistics import MILLI, Latency, Part, Sum, Totals
from nsqd_py.cluster.values import fields_of

Json = dict[str, Any]

RATES = ("message_rate", "finish_rate", "requeue_rate", "timeout_rate")
# The metrics of an nsqd that has no standby, and is none.
NO_ROLE: Json = {
    **dict.fromkeys(("epoch", "lag_messages", "lag_bytes", "lag_s", "standby", "standbys")),
    "role": "",
    "troubles": [],
}


@dataclass(slots=True)
class View:
    """The content of a page: metrics of the whole, and rows by key, in their order."""

    head: Json
    rows: dict[str, Json] = field(default_factory=dict)


def hide_rates(view: View) -> None:
    """Replace all rates by null, which means unknown."""
    for row in (view.head, *view.rows.values()):
        row.update((name, None) for name in RATES if name in row)


def metrics_json(totals: Totals) -> Json:
    """Return the metrics of topics and their channels. The depth is that of all of them."""
    own = TopicCounts._make(totals.topics)
    counts = ChannelCounts._make(totals.channels)
    rates = Rates._make(totals.channel_rates)
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
        "message_rate": totals.topic_rates[0] / MILLI,
        "finish_rate": rates.finished / MILLI,
        "requeue_rate": rates.requeued / MILLI,
        "timeout_rate": rates.timed_out / MILLI,
    }


def channel_metrics_json(row: Sum | Part) -> Json:
    """Return the metrics of a channel, over all nsqds or on one."""
    messages = ChannelCounts._make(row.counts).messages
    return metrics_json(Totals(TopicCounts(0, 0, messages), row.rates, row.counts, row.rates))


def node_metrics_json(node: Node) -> Json:
    """Return the metrics of an nsqd, and how many topics and channels it has."""
    return {
        "topics": len(node.topics),
        "channels": sum(len(part.channels) for part in node.topics.values()),
        **metrics_json(node.totals),
    }


def latency_json(latency: Latency) -> list[Json]:
    return [{"quantile": quantile, "ns": value_ns} for quantile, value_ns in latency]


def oldest_json(rows: Iterable[Sum | Part]) -> float | None:
    """Return the publish time of the oldest waiting message, in s since the epoch; None if none is known."""
    oldest_ns = min((row.oldest_ns for row in rows if row.oldest_ns), default=0)
    return oldest_ns / 1e9 if oldest_ns else None


# ---- roles


class Roles:
    """The pairs of primaries and standbys of a cluster, as of now."""

    def __init__(self, cluster: Cluster) -> None:
        self.pairs = cluster.pairs()
        self._problems = list(of_standbys(self.pairs))

    def json_of(self, node: Node) -> Json:
        """Return the role of an nsqd, the lag of a standby, and the largest lag of a primary's standbys."""
        if node.role is None:
            return NO_ROLE
        about: Json = {
            **NO_ROLE,
            "epoch": node.role.epoch,
            "troubles": [problem.text for problem in self._problems if problem.node == node.address],
        }
        if isinstance(node.role, KnownStandby):
            pair = next(pair for pair in self.pairs if pair.standby == node.address)
            standby = pair_json(pair) | {"lease_decides": pair.lease_decides}
            return about | {"role": "standby", "standby": standby} | _lag_json(pair.lag)
        own = [pair for pair in self.pairs if pair.primary == node.address and pair.standby]
        standbys = {
            "acks": node.role.acks,
            "is_alone": node.role.is_alone,
            "list": [pair_json(pair) for pair in own],
        }
        about |= {"role": "primary", "standbys": standbys}
        known = [pair.lag for pair in own if pair.state != FAILED]
        if known:
            about |= _lag_json(max(known, key=lambda lag: (lag.ms, lag.messages or 0)))
        return about


def store_json(node: Node) -> Json | None:
    """Return the store of an nsqd; None if it has none."""
    store = node.store
    if store is None:
        return None
    as_of_s = None
    if store.last_round_ms_ago is not None:
        as_of_s = store.last_round_ms_ago / 1000
    return {
        **fields_of(store, "url", "epoch", "state", "acks"),
        **_lag_json(store.lag),
        "as_of_s": as_of_s,
        **fields_of(store, "objects", "size_bytes", "requests_today"),
        "troubles": [problem.text for problem in of_store(node.address, store)],
    }


def pair_json(pair: Pair) -> Json:
    """Return a standby and its primary. `as_of_s` is the age of the lag, null if none was known yet."""
    return {
        "node": pair.standby,
        **fields_of(pair, "primary", "primary_answers", "state", "is_complete", "as_of_s"),
        "set_aside_messages": pair.set_aside,
        **_lag_json(pair.lag),
    }


def _lag_json(lag: Lag) -> Json:
    return {"lag_messages": lag.messages, "lag_bytes": lag.size_bytes, "lag_s": lag.age_s}
