"""The form of all views: a head, and rows that know when they last changed; and the metrics in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any

from nsqadmin_py.cluster.last_known import FIGURES, NOTHING_KNOWN, LastKnown, NodeMemory
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.roles import KnownStandby, Pair, Primary, Trouble, troubles
from nsqd_py.cluster.statistics import MILLI, ChannelCounts, Latency, Numbers, Part, Rates, Sum, TopicCounts

Json = dict[str, Any]


class BadViewQuery(ValueError):
    """The query is not valid; str(error) is the message of the answer."""


class NotKnown(LookupError):
    """The topic, channel or node does not exist; str(error) is the message of the answer."""


@dataclass(slots=True)
class View:
    """`changed` holds for each key the tick in which its row last changed."""

    head: Json
    rows: dict[str, Json] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)

    def add(self, key: str, row: Json, changed: int) -> None:
        self.rows[key] = row
        self.changed[key] = changed


RATES = ("message_rate", "finish_rate", "requeue_rate", "timeout_rate")


def hide_rates(view: View) -> None:
    """Replace all rates by null, which means unknown."""
    for row in (view.head, *view.rows.values()):
        row.update((name, None) for name in RATES if name in row)


def figures_json(topic_depth: int, counts: ChannelCounts, messages: int, flow: Numbers, rates: Numbers) -> Json:
    pace = Rates._make(rates)
    return {
        "depth": topic_depth + counts.depth,
        "topic_depth": topic_depth,
        "in_flight": counts.in_flight,
        "deferred": counts.deferred,
        "messages": messages,
        "requeued": counts.requeued,
        "timed_out": counts.timed_out,
        "clients": counts.clients,
        "message_rate": flow[0] / MILLI,
        "finish_rate": pace.finished / MILLI,
        "requeue_rate": pace.requeued / MILLI,
        "timeout_rate": pace.timed_out / MILLI,
    }


def latency_json(latency: Latency) -> list[Json]:
    return [{"quantile": quantile, "ns": value_ns} for quantile, value_ns in latency]


def oldest_json(rows: Iterable[Sum | Part]) -> float | None:
    """Return the publish time of the oldest waiting message, in s since the epoch; None if none is known."""
    oldest_ns = min((row.oldest_ns for row in rows if row.oldest_ns), default=0)
    return oldest_ns / 1e9 if oldest_ns else None


# The metrics of an nsqd that has no standby, and is none.
NO_ROLE: Json = {
    "role": "",
    "epoch": None,
    "lag_messages": None,
    "lag_bytes": None,
    "lag_s": None,
    "standby": None,
    "standbys": None,
    "troubles": [],
}


class Roles:
    """The pairs of primaries and standbys of a cluster, as of now."""

    def __init__(self, cluster: Cluster) -> None:
        self.pairs = cluster.pairs()
        self._troubles: list[Trouble] = list(troubles(self.pairs))

    def json_of(self, node: Node) -> Json:
        """Return the role of an nsqd, the lag of a standby, and the largest lag of a primary's standbys."""
        if node.role is None:
            return NO_ROLE
        about: Json = {"epoch": node.role.epoch, "troubles": self._texts(node.address)}
        if isinstance(node.role, KnownStandby):
            pair = next(pair for pair in self.pairs if pair.standby == node.address)
            about |= {"role": "standby", "standby": pair_json(pair) | {"lease_decides": pair.lease_decides}}
            return NO_ROLE | about | _lag_json(pair)
        own = [pair for pair in self.pairs if pair.primary == node.address and pair.standby]
        about |= {"role": "primary", "standbys": _primary_json(node.role, own)}
        known = [pair for pair in own if pair.state != FAILED]
        if known:
            about |= _lag_json(max(known, key=lambda pair: (pair.lag.ms, pair.lag.messages or 0)))
        return NO_ROLE | about

    def _texts(self, address: str) -> list[str]:
        return [trouble.text for trouble in self._troubles if trouble.node == address]


def _primary_json(role: Primary, own: list[Pair]) -> Json:
    return {"acks": role.acks, "is_alone": role.is_alone, "list": [pair_json(pair) for pair in own]}


def pair_json(pair: Pair) -> Json:
    """Return a standby and its primary. `as_of_s` is the age of the lag, null if none was known yet."""
    return {
        "node": pair.standby,
        "primary": pair.primary,
        "primary_answers": pair.primary_answers,
        "state": pair.state,
        "is_complete": pair.is_complete,
        "as_of_s": None if pair.as_of_ms is None else pair.as_of_ms / 1000,
        "set_aside_messages": pair.set_aside,
        **_lag_json(pair),
    }


def _lag_json(pair: Pair) -> Json:
    return {"lag_messages": pair.lag.messages, "lag_bytes": pair.lag.size_bytes, "lag_s": round(pair.lag.ms / 1000, 3)}


# An nsqd whose answer takes this long is slow. The poller marks it as late earlier.
SLOW_AFTER_S = 5.0

# The topics that the row of an nsqd names.
MOST_NAMED = 3

# FAILED is also the state of a standby that does not answer, see `nsqd_py.cluster.roles`.
OK, SLOW, FAILED, NEW, GONE = "ok", "slow", "failed", "new", "gone"


def state_of(node: Node, now_s: float) -> str:
    """Return ok, slow (its metrics are old), failed (an error, or no answer for long) or new (not asked yet)."""
    if node.failure or is_forgotten(node):
        return FAILED
    age_s = node.age_s(now_s)
    if age_s is None:
        return SLOW if node.is_slow else NEW
    is_awaited = node.answered_s is not None and node.asked_s > node.answered_s
    return SLOW if node.is_slow or (is_awaited and now_s - node.asked_s > SLOW_AFTER_S) else OK


def is_forgotten(node: Node) -> bool:
    """True if it has been silent for so long that its metrics are in no sum any more."""
    return node.answered_s is not None and not node.is_whole


def version_of(node: Node) -> str:
    return node.version or str(node.reported.get("version") or "unknown")


def tombstones_of(node: Node) -> list[str]:
    """Return the topics that nsqlookupds hide on this nsqd."""
    return [row["topic"] for row in node.reported.get("topics") or () if row["tombstoned"]]


def _node_json(node: Node, now_s: float, known: LastKnown | None, roles: Roles) -> Json:
    age_s = node.age_s(now_s)
    return {
        "node": node.address,
        "hostname": node.reported.get("hostname", ""),
        "broadcast_address": node.reported.get("broadcast_address", ""),
        "tcp_port": node.reported.get("tcp_port", 0),
        "http_port": node.reported.get("http_port", 0),
        "version": version_of(node),
        "out_of_date": node.reported.get("out_of_date", False),
        "lookups": node.reported.get("remote_addresses") or [],
        "is_listed": node.is_listed,
        "topology_zone": node.reported.get("topology_zone", ""),
        "topology_region": node.reported.get("topology_region", ""),
        "tombstones": tombstones_of(node),
        "state": state_of(node, now_s),
        "failure": node.failure,
        "health": node.health,
        "start_time": node.start_time,
        "age_s": None if age_s is None else round(age_s, 1),
        "seen_s": known.seen_s if known is not None else None,
        "took_ms": round(node.took_s * 1000),
        **roles.json_of(node),
        **_node_figures(node, known),
    }


def _node_figures(node: Node, known: LastKnown | None) -> Json:
    """Return the metrics of an nsqd: the last ones that it reported if it does not answer; null if there are none."""
    if not node.is_whole:
        return _last_figures(known)
    counts = ChannelCounts._make(node.of_channels.counts)
    own = node.of_topics
    return {
        "topics": len(node.topics),
        "topic_names": nsmallest(MOST_NAMED, node.topics),
        "channels": sum(len(part.channels) for part in node.topics.values()),
        "channel_messages": counts.messages,
        **figures_json(own.counts[0], counts, own.counts[2], own.rates, node.of_channels.rates),
    }


def _last_figures(known: LastKnown | None) -> Json:
    metrics = known.metrics if known is not None else {}
    names = [*FIGURES, "requeued", "timed_out", *RATES]
    return {name: metrics.get(name) for name in names} | {"topic_names": []}


def _gone_json(known: LastKnown, now_s: float, roles: Roles) -> Json:
    """Return the row of an nsqd that is no longer part of the cluster."""
    reported = {"hostname": known.hostname}
    gone = Node(known.address, reported, start_time=known.start_time, version=known.version, is_listed=False)
    row = _node_json(gone, now_s, known, roles)
    return row | {"state": GONE, "role": "standby" if known.primary else ""}


def nodes(cluster: Cluster, now_s: float, memory: NodeMemory = NOTHING_KNOWN) -> View:
    """Return all nsqds, also those that are gone and not dismissed yet."""
    view = View({"total": len(cluster.nodes), "failed_lookups": dict(sorted(cluster.failed_lookups.items()))})
    gone = {known.address: known for known in memory.gone()}
    roles = Roles(cluster)
    for address in sorted(cluster.nodes.keys() | gone.keys()):
        if address in gone:
            view.add(address, _gone_json(gone[address], now_s, roles), cluster.tick)
            continue
        node = cluster.nodes[address]
        row = _node_json(node, now_s, memory.nodes.get(address), roles)
        view.add(address, row, _node_changed(node, now_s, cluster.tick))
    return view


def _node_changed(node: Node, now_s: float, tick: int) -> int:
    """Return the tick of the last change. Ages and lags change in every tick."""
    if state_of(node, now_s) != OK or node.role is not None:
        return tick
    return max(node.changed, node.of_topics.changed, node.of_channels.changed)


def node(cluster: Cluster, address: str, now_s: float, memory: NodeMemory = NOTHING_KNOWN) -> View:
    """Return an nsqd, and its topics by name; none of one that does not answer. Raises NotKnown."""
    found, known = cluster.nodes.get(address), memory.nodes.get(address)
    if found is None and (known is None or not known.is_gone):
        raise NotKnown("NODE_NOT_FOUND")
    roles = Roles(cluster)
    if found is None:
        assert known is not None
        return View(_gone_json(known, now_s, roles) | {"latency": []})
    view = View(_node_json(found, now_s, known, roles) | {"latency": latency_json(found.latency)})
    tombstones = tombstones_of(found)
    for name in sorted(found.topics) if found.is_whole else ():
        part = found.topics[name]
        own, sums = TopicCounts._make(part.counts), ChannelCounts._make(part.channel_counts)
        metrics = figures_json(own.depth, sums, own.messages, part.rates, part.channel_rates)
        row = {"topic": name, "paused": part.is_paused, "channels": len(part.channels), **metrics}
        row |= {"tombstoned": name in tombstones, "backend_depth": own.backend_depth + sums.backend_depth}
        of_channels = (channel.changed for channel in part.channels.values())
        view.add(name, row, max([part.changed, found.changed, *of_channels]))
    return view
