"""The JSON of the cluster that the page shows. Pure.

A view has a head, rows by key, and the order of the keys. Each row has the tick in which it last changed, so that a
reader of an earlier tick gets only what is new. Names and texts come from other programs: never treat them as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nsqd_py.cluster.figures import (
    MILLI,
    ChannelCounts,
    Latency,
    Numbers,
    Part,
    Rates,
    Sum,
    TopicCounts,
    TopicRow,
)
from nsqd_py.cluster.model import Cluster, Node, totals

Json = dict[str, Any]

DEFAULT_LIMIT = 100
MOST_LIMIT = 1000
# An nsqd whose answer takes this long is slow. The poller marks it as late earlier.
SLOW_AFTER_S = 5.0


class BadQuery(ValueError):
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


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of a list that a page shows, and their order."""

    search: str = ""
    sort: str = "topic"
    downwards: bool = False
    offset: int = 0
    limit: int = DEFAULT_LIMIT

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Page:
        """Read `search`, `sort`, `order` (asc, desc), `offset` and `limit`. Raises BadQuery."""
        sort = query.get("sort") or "topic"
        if sort not in SORTABLE:
            raise BadQuery("INVALID_ARG_SORT")
        order = query.get("order") or ("asc" if sort == "topic" else "desc")
        if order not in ("asc", "desc"):
            raise BadQuery("INVALID_ARG_ORDER")
        limit = _number(query, "limit", DEFAULT_LIMIT)
        if not 0 < limit <= MOST_LIMIT:
            raise BadQuery("INVALID_ARG_LIMIT")
        return cls(query.get("search", "").lower(), sort, order == "desc", _number(query, "offset", 0), limit)


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name) or str(default)
    if not text.isdecimal() or len(text) > 9:
        raise BadQuery(f"INVALID_ARG_{name.upper()}")
    return int(text)


# ---- the cluster


def overview(cluster: Cluster, now_s: float) -> View:
    """Return sums over the cluster, and the states of its nsqds and nsqlookupds."""
    topics, topic_rates, channels, channel_rates = totals(cluster)
    states = [state_of(node, now_s) for node in cluster.nodes.values()]
    versions: dict[str, int] = {}
    for node in cluster.nodes.values():
        version = version_of(node)
        versions[version] = versions.get(version, 0) + 1
    counts = ChannelCounts._make(channels)
    figures = _figures(topics[0], counts, topics[2], topic_rates, channel_rates)
    head = {
        "topics": len(cluster.topics),
        "channels": sum(len(topic.channels) for topic in cluster.topics.values()),
        "nodes": len(cluster.nodes),
        "nodes_ok": states.count(OK),
        "nodes_slow": states.count(SLOW),
        "nodes_failed": states.count(FAILED),
        "versions": dict(sorted(versions.items())),
        "failed_lookups": dict(sorted(cluster.failed_lookups.items())),
        "channel_messages": counts.messages,  # counted as by Go's nsqadmin
        **figures,
    }
    return View(head)


def _figures(topic_depth: int, counts: ChannelCounts, messages: int, flow: Numbers, rates: Numbers) -> Json:
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


# ---- topics


def _topic_json(name: str, row: TopicRow) -> Json:
    counts, rates = row.channel_totals()
    own = row.figures
    return {
        "topic": name,
        **_figures(own.depth, counts, own.messages, row.rates, rates),
        "backend_depth": own.backend_depth + counts.backend_depth,
        "paused": row.paused_parts > 0,
        "paused_channels": sum(channel.paused_parts > 0 for channel in row.channels.values()),
        "channels": len(row.channels),
        "nodes": len(row.parts),
    }


SORTABLE: dict[str, Callable[[Json], Any]] = {
    name: lambda row, name=name: row[name]  # type: ignore[misc]
    for name in (
        "topic", "depth", "in_flight", "deferred", "messages", "message_rate", "finish_rate", "requeue_rate",
        "timeout_rate", "requeued", "timed_out", "clients", "channels", "nodes", "paused",
    )
}  # fmt: skip


def topic_list(cluster: Cluster, page: Page) -> View:
    """Return a page of the topics whose name, or a channel's name, contains the searched text."""
    names = [name for name, row in cluster.topics.items() if _is_searched(page.search, name, row)]
    names.sort()  # the sort is stable: equal rows stay in the order of names
    if page.sort == "topic":
        ordered = names[::-1] if page.downwards else names
        shown = [_topic_json(name, cluster.topics[name]) for name in ordered[page.offset : page.offset + page.limit]]
    else:
        rows = [_topic_json(name, cluster.topics[name]) for name in names]
        rows.sort(key=SORTABLE[page.sort], reverse=page.downwards)
        shown = rows[page.offset : page.offset + page.limit]
    view = View({"total": len(names), "offset": page.offset, "limit": page.limit})
    for row in shown:
        view.add(row["topic"], row, cluster.topics[row["topic"]].changed_at())
    return view


def _is_searched(text: str, name: str, row: TopicRow) -> bool:
    return not text or text in name.lower() or any(text in channel.lower() for channel in row.channels)


def topic(cluster: Cluster, name: str, now_s: float) -> View:
    """Return a topic, its channels (`channel:…`) and its nsqds (`node:…`). Raises NotKnown."""
    row = cluster.topics.get(name)
    if row is None:
        raise NotKnown("TOPIC_NOT_FOUND")
    view = View(_topic_json(name, row) | {"latency": _latency_json(cluster.latency_of(row, name))})
    for channel_name in sorted(row.channels):
        channel = row.channels[channel_name]
        view.add(f"channel:{channel_name}", _channel_json(cluster, name, channel_name), channel.changed)
    for node, part in cluster.parts_of(name):
        topic_part = node.topics[name]
        sums = ChannelCounts._make(topic_part.channel_counts)
        own = TopicCounts._make(part.counts)
        figures = _figures(own.depth, sums, own.messages, part.rates, topic_part.channel_rates)
        about = _part_json(node, part, now_s) | {"tombstoned": name in tombstones_of(node)}
        about |= {"channels": len(topic_part.channels), "backend_depth": own.backend_depth + sums.backend_depth}
        changed = max([part.changed, node.changed, *(channel.changed for channel in topic_part.channels.values())])
        view.add(f"node:{node.address}", about | figures, changed)
    return view


def _part_json(node: Node, part: Part, now_s: float) -> Json:
    """Return the keys of an nsqd that are shown beside the figures of its part of a topic or channel."""
    return {
        "node": node.address,
        "hostname": node.told.get("hostname", ""),
        "state": state_of(node, now_s),
        "paused": part.is_paused,
        "latency": _latency_json(part.latency),
    }


def _latency_json(latency: Latency) -> list[Json]:
    return [{"quantile": quantile, "ns": value_ns} for quantile, value_ns in latency]


# ---- channels


def _channel_json(cluster: Cluster, topic: str, name: str) -> Json:
    row = cluster.topics[topic].channels[name]
    figures = _channel_figures(row.figures, row.rates)
    latency = _latency_json(cluster.latency_of(row, topic, name))
    about = {"topic": topic, "channel": name, "paused": row.paused_parts > 0, "nodes": len(row.parts)}
    return about | {"latency": latency} | figures


def _channel_figures(counts: ChannelCounts, rates: Numbers) -> Json:
    figures = _figures(0, counts, counts.messages, rates, rates)
    del figures["topic_depth"]
    return figures | {"backend_depth": counts.backend_depth}


def channel(cluster: Cluster, topic_name: str, name: str, now_s: float) -> View:
    """Return a channel, and its nsqds by address. Raises NotKnown."""
    row: Sum | None = cluster.topics.get(topic_name)
    if row is None:
        raise NotKnown("TOPIC_NOT_FOUND")
    if name not in cluster.topics[topic_name].channels:
        raise NotKnown("CHANNEL_NOT_FOUND")
    view = View(_channel_json(cluster, topic_name, name))
    for node, part in cluster.parts_of(topic_name, name):
        figures = _channel_figures(ChannelCounts._make(part.counts), part.rates)
        view.add(node.address, _part_json(node, part, now_s) | figures, max(part.changed, node.changed))
    return view


# ---- nodes

OK, SLOW, FAILED, NEW = "ok", "slow", "failed", "new"


def state_of(node: Node, now_s: float) -> str:
    """Return ok, slow (its figures are old), failed (an error or no answer) or new (not asked yet)."""
    if node.failure:
        return FAILED
    age_s = node.age_s(now_s)
    if age_s is None:
        return SLOW if node.is_late else NEW
    is_awaited = node.answered_s is not None and node.asked_s > node.answered_s
    return SLOW if node.is_late or (is_awaited and now_s - node.asked_s > SLOW_AFTER_S) else OK


def version_of(node: Node) -> str:
    return node.version or str(node.told.get("version") or "unknown")


def tombstones_of(node: Node) -> list[str]:
    """Return the topics that nsqlookupds hide on this nsqd."""
    return [row["topic"] for row in node.told.get("topics") or () if row["tombstoned"]]


def _node_json(node: Node, now_s: float) -> Json:
    counts = ChannelCounts._make(node.of_channels.counts)
    age_s = node.age_s(now_s)
    own = node.of_topics
    return {
        "node": node.address,
        "hostname": node.told.get("hostname", ""),
        "broadcast_address": node.told.get("broadcast_address", ""),
        "tcp_port": node.told.get("tcp_port", 0),
        "http_port": node.told.get("http_port", 0),
        "version": version_of(node),
        "out_of_date": node.told.get("out_of_date", False),
        "lookups": node.told.get("remote_addresses") or [],
        "topology_zone": node.told.get("topology_zone", ""),
        "topology_region": node.told.get("topology_region", ""),
        "tombstones": tombstones_of(node),
        "state": state_of(node, now_s),
        "failure": node.failure,
        "health": node.health,
        "start_time": node.start_time,
        "age_s": None if age_s is None else round(age_s, 1),
        "took_ms": round(node.took_s * 1000),
        "topics": len(node.topics),
        "channels": sum(len(part.channels) for part in node.topics.values()),
        "channel_messages": counts.messages,
        **_figures(own.counts[0], counts, own.counts[2], own.rates, node.of_channels.rates),
    }


def nodes(cluster: Cluster, now_s: float) -> View:
    view = View({"total": len(cluster.nodes), "failed_lookups": dict(sorted(cluster.failed_lookups.items()))})
    for address in sorted(cluster.nodes):
        node = cluster.nodes[address]
        view.add(address, _node_json(node, now_s), _node_changed(node, now_s, cluster.tick))
    return view


def _node_changed(node: Node, now_s: float, tick: int) -> int:
    """Return the tick of the last change. The age of a node that does not answer changes in every tick."""
    if state_of(node, now_s) != OK:
        return tick
    return max(node.changed, node.of_topics.changed, node.of_channels.changed)


def node(cluster: Cluster, address: str, now_s: float) -> View:
    """Return an nsqd, and its topics by name. Raises NotKnown."""
    found = cluster.nodes.get(address)
    if found is None:
        raise NotKnown("NODE_NOT_FOUND")
    view = View(_node_json(found, now_s) | {"latency": _latency_json(found.latency)})
    tombstones = tombstones_of(found)
    for name in sorted(found.topics):
        part = found.topics[name]
        own, sums = TopicCounts._make(part.counts), ChannelCounts._make(part.channel_counts)
        figures = _figures(own.depth, sums, own.messages, part.rates, part.channel_rates)
        row = {"topic": name, "paused": part.is_paused, "channels": len(part.channels), **figures}
        row |= {"tombstoned": name in tombstones, "backend_depth": own.backend_depth + sums.backend_depth}
        of_channels = (channel.changed for channel in part.channels.values())
        view.add(name, row, max([part.changed, found.changed, *of_channels]))
    return view
