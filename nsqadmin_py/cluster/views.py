"""The JSON of the cluster that the page shows. Pure.

Names and texts come from other programs: never treat them as markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from nsqadmin_py.cluster import metrics
from nsqadmin_py.cluster.attention import badges_json
from nsqadmin_py.cluster.findings import NO_FINDINGS, Findings
from nsqadmin_py.cluster.node_views import tombstones_of, version_of
from nsqd_py.cluster.model import Cluster, Node, totals
from nsqd_py.cluster.problems import states
from nsqd_py.cluster.problems.of_channels import DEAD, waiting_dead_letters
from nsqd_py.cluster.problems.of_nodes import is_planned
from nsqd_py.cluster.roles import KnownStandby
from nsqd_py.cluster.statistics import ChannelCounts, ChannelRow, Part, Rates, Sum, TopicRow
from nsqd_py.cluster.values import Pace

DEFAULT_LIMIT = 100
MOST_LIMIT = 1000
_DEPTH = 0  # of TopicCounts and ChannelCounts


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of a list that a page shows, and their order."""

    search: str = ""
    sort: str = "topic"
    downwards: bool = False
    offset: int = 0
    limit: int = DEFAULT_LIMIT
    only_problems: bool = False

    @classmethod
    def read(cls, query: Mapping[str, str], sortable: Container[str] | None = None) -> Page:
        """Read `search`, `sort`, `order` (asc, desc), `offset`, `limit` and `only` (problems). Raises BadQuery."""
        sort = query.get("sort") or "topic"
        if sort not in (SORTABLE if sortable is None else sortable):
            raise metrics.BadViewQuery("INVALID_ARG_SORT")
        only = query.get("only", "")
        if only not in ("", "problems"):
            raise metrics.BadViewQuery("INVALID_ARG_ONLY")
        order = query.get("order") or ("asc" if sort == "topic" else "desc")
        if order not in ("asc", "desc"):
            raise metrics.BadViewQuery("INVALID_ARG_ORDER")
        limit = _number(query, "limit", DEFAULT_LIMIT)
        if not 0 < limit <= MOST_LIMIT:
            raise metrics.BadViewQuery("INVALID_ARG_LIMIT")
        offset = _number(query, "offset", 0)
        return cls(query.get("search", "").lower(), sort, order == "desc", offset, limit, bool(only))

    def finds(self, *names: str) -> bool:
        """True if one of the names contains the searched text."""
        return not self.search or any(self.search in name.lower() for name in names)


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name) or str(default)
    if not text.isdecimal() or len(text) > 9:
        raise metrics.BadViewQuery(f"INVALID_ARG_{name.upper()}")
    return int(text)


# ---- the cluster


def overview(cluster: Cluster, now_s: float, findings: Findings = NO_FINDINGS) -> metrics.View:
    """Return sums over the cluster, and the states of its nsqds and nsqlookupds.

    `missing_depth` counts the messages on nsqds that do not answer, which are not in the sums.
    """
    topics, topic_rates, channels, channel_rates = totals(cluster)
    found = [states.state_of(node, now_s) for node in cluster.nodes.values()]
    versions = Counter(node.project_version or version_of(node) for node in cluster.nodes.values())
    stopped = sum(map(is_planned, findings.memory.gone()))
    channels_of_all = (channel for row in cluster.topics.values() for channel in row.channels.values())
    head = {
        "topics": len(cluster.topics),
        "channels": sum(len(topic.channels) for topic in cluster.topics.values()),
        "nodes": len(cluster.nodes),
        "nodes_ok": found.count(states.OK),
        "nodes_slow": found.count(states.SLOW),
        "nodes_failed": found.count(states.FAILED),
        "problems": findings.attention.counts.total(),
        "standbys": sum(isinstance(node.role, KnownStandby) for node in cluster.nodes.values()),
        "nodes_gone": len(findings.memory.gone()) - stopped,
        "nodes_stopped": stopped,
        "nodes_draining": sum(node.drain is not None for node in cluster.nodes.values()),
        **_oldest_json([*cluster.topics.values(), *channels_of_all], findings),
        "missing_depth": sum(known.depth for known in findings.memory.absent(cluster)),
        "versions": dict(sorted(versions.items())),
        "failed_lookups": dict(sorted(cluster.failed_lookups.items())),
        "channel_messages": ChannelCounts._make(channels).messages,  # counted as by Go's nsqadmin
        **metrics.metrics_json(topics, topic_rates, channels, channel_rates),
    }
    return metrics.View(head)


# ---- topics


def _topic_json(name: str, row: TopicRow, findings: Findings) -> metrics.Json:
    counts, rates = row.channel_totals()
    return {
        "topic": name,
        **metrics.metrics_json(row.counts, row.rates, counts, rates),
        "paused": row.paused_parts > 0,
        "paused_channels": sum(channel.paused_parts > 0 for channel in row.channels.values()),
        "channels": len(row.channels),
        "nodes": len(row.parts),
        **_oldest_json([row, *row.channels.values()], findings),
        "problems": badges_json(findings.attention.of_topic(name), is_topic=True),
    }


_RATES_AND_COUNTS = ("message_rate", "finish_rate", "requeue_rate", "timeout_rate", "requeued", "timed_out", "clients")
SORTABLE = ("topic", "harm", "depth", "in_flight", "deferred", "messages", *_RATES_AND_COUNTS, "channels", "nodes", "paused")


def topic_list(cluster: Cluster, page: Page, findings: Findings = NO_FINDINGS) -> metrics.View:
    """Return a page of the topics whose name, or a channel's name, contains the searched text."""
    names = [
        name
        for name, row in cluster.topics.items()
        if page.finds(name, *row.channels) and (not page.only_problems or findings.attention.of_topic(name))
    ]
    names.sort()  # the sort is stable: equal rows stay in the order of names
    if page.sort in ("topic", "harm"):
        if page.sort == "harm":
            names.sort(key=lambda name: _harm_of_topic(name, cluster.topics[name], findings), reverse=page.downwards)
        elif page.downwards:
            names.reverse()
        shown = [_topic_json(name, cluster.topics[name], findings) for name in names[page.offset : page.offset + page.limit]]
    else:
        rows = [_topic_json(name, cluster.topics[name], findings) for name in names]
        rows.sort(key=itemgetter(page.sort), reverse=page.downwards)
        shown = rows[page.offset : page.offset + page.limit]
    view = metrics.View({"total": len(names), "offset": page.offset, "limit": page.limit})
    view.rows = {row["topic"]: row for row in shown}
    return view


def _harm_of_topic(name: str, row: TopicRow, findings: Findings) -> tuple[int, int]:
    """Return how bad its worst problem is, and how many messages wait if it has one."""
    harm = findings.attention.harm(name)
    return harm, row.channel_totals()[0][_DEPTH] + row.counts[_DEPTH] if harm else 0


def topic(cluster: Cluster, name: str, now_s: float, findings: Findings = NO_FINDINGS, pace: Pace = iter) -> metrics.View:
    """Return a topic, its channels (`channel:…`) and its nsqds (`node:…`). Raises NotKnown."""
    row = cluster.topics.get(name)
    if row is None:
        raise metrics.NotKnown("TOPIC_NOT_FOUND")
    dead_letters = waiting_dead_letters(row if name.endswith(DEAD) else cluster.topics.get(name + DEAD))
    head = _topic_json(name, row, findings) | {"latency": metrics.latency_json(cluster.latency_of(row, name))}
    view = metrics.View(head | {"dead_letters": dead_letters})
    for channel_name in sorted(row.channels):
        view.rows[f"channel:{channel_name}"] = channel_json(cluster, name, channel_name, findings)
    for node, part in pace([(node, node.topics[name]) for node, _ in cluster.parts_of(name)]):
        shown = metrics.metrics_json(part.counts, part.rates, part.channel_counts, part.channel_rates)
        about = {"tombstoned": name in tombstones_of(node), "channels": len(part.channels)}
        view.rows[f"node:{node.address}"] = _part_json(node, part, now_s) | about | shown
    return view


def _part_json(node: Node, part: Part, now_s: float) -> metrics.Json:
    """Return the keys of an nsqd that are shown next to the metrics of its part of a topic or channel."""
    return {
        "node": node.address,
        "hostname": node.reported.get("hostname", ""),
        "state": states.state_of(node, now_s),
        "paused": part.is_paused,
        "oldest_s": metrics.oldest_json([part]),
        "latency": metrics.latency_json(part.latency),
    }


# ---- channels


def channel_json(cluster: Cluster, topic: str, name: str, findings: Findings) -> metrics.Json:
    """Return the row of a channel over all nsqds."""
    row = cluster.topics[topic].channels[name]
    drain_s = findings.trends.drain_s(topic, name)
    return {
        "topic": topic,
        "channel": name,
        "paused": row.paused_parts > 0,
        "nodes": len(row.parts),
        **_oldest_json([row], findings),
        "problems": badges_json(problem for problem in findings.attention.of_topic(topic) if problem.channel == name),
        "drain_s": None if drain_s is None else round(drain_s, 1),  # None if that is never
        "latency": metrics.latency_json(cluster.latency_of(row, topic, name)),
        **metrics.channel_metrics_json(row.counts, row.rates),
    }


def _oldest_json(rows: Iterable[Sum | Part], findings: Findings) -> metrics.Json:
    """Return when the oldest waiting message was published, in s since the epoch, and how long ago; null if unknown."""
    oldest_s = metrics.oldest_json(rows)
    return {"oldest_s": oldest_s, "oldest_age_s": findings.age_s(oldest_s)}


def channel(
    cluster: Cluster, topic_name: str, name: str, now_s: float, findings: Findings = NO_FINDINGS, pace: Pace = iter
) -> metrics.View:
    """Return a channel, and its nsqds by address. Raises NotKnown."""
    row: Sum | None = cluster.topics.get(topic_name)
    if row is None:
        raise metrics.NotKnown("TOPIC_NOT_FOUND")
    if name not in cluster.topics[topic_name].channels:
        raise metrics.NotKnown("CHANNEL_NOT_FOUND")
    view = metrics.View(channel_json(cluster, topic_name, name, findings))
    for node, part in pace(list(cluster.parts_of(topic_name, name))):
        view.rows[node.address] = _part_json(node, part, now_s) | metrics.channel_metrics_json(part.counts, part.rates)
    return view


class _Found(NamedTuple):
    topic: str
    channel: str
    row: ChannelRow | Part


Sort = Callable[[_Found, Findings], Any]


def _count(name: str) -> Sort:
    place = ChannelCounts._fields.index(name)
    return lambda found, _: found.row.counts[place]


def _rate(name: str) -> Sort:
    place = Rates._fields.index(name)
    return lambda found, _: found.row.rates[place]


def _harm_of_channel(found: _Found, findings: Findings) -> tuple[int, int]:
    harm = findings.attention.harm(found.topic, found.channel)
    return harm, found.row.counts[_DEPTH] if harm else 0


def _drain_s(found: _Found, findings: Findings) -> float:
    drain_s = findings.trends.drain_s(found.topic, found.channel)
    return inf if drain_s is None else drain_s


# Rows are made only of those channels that are shown: with 30,000 channels, making all takes 0.2 s.
SORTS: dict[str, Sort] = {
    "topic": lambda found, _: (found.topic, found.channel),
    "channel": lambda found, _: (found.channel, found.topic),
    **{name: _count(name) for name in ("depth", "in_flight", "deferred", "messages", "clients")},
    "message_rate": _rate("messages"),
    "finish_rate": _rate("finished"),
    "requeue_rate": _rate("requeued"),
    "timeout_rate": _rate("timed_out"),
    "oldest_age_s": lambda found, _: -found.row.oldest_ns if found.row.oldest_ns else -inf,
    "drain_s": _drain_s,
    "harm": _harm_of_channel,
}


def channel_list(cluster: Cluster, page: Page, findings: Findings = NO_FINDINGS, node: str = "") -> metrics.View:
    """Return a page of the channels whose name, or whose topic's name, contains the searched text.

    With `node` they are those of one nsqd, with its metrics. Raises NotKnown if there is no such nsqd.
    """
    if node and node not in cluster.nodes:
        raise metrics.NotKnown("NODE_NOT_FOUND")
    matching = _of_node(cluster.nodes[node], page) if node else _found(cluster, page, findings)
    found = sorted(matching, key=lambda one: (one.topic, one.channel))
    sort = SORTS[page.sort]
    found.sort(key=lambda one: sort(one, findings), reverse=page.downwards)
    view = metrics.View({"total": len(found), "offset": page.offset, "limit": page.limit})
    for topic, channel, row in found[page.offset : page.offset + page.limit]:
        key = f"{len(topic)}:{topic}/{channel}"
        if isinstance(row, Part):
            view.rows[key] = _part_row(topic, channel, row, findings)
        else:
            view.rows[key] = channel_json(cluster, topic, channel, findings)
    return view


def _part_row(topic: str, channel: str, part: Part, findings: Findings) -> metrics.Json:
    """Return the row of a channel on one nsqd."""
    about = {"topic": topic, "channel": channel, "paused": part.is_paused, "latency": metrics.latency_json(part.latency)}
    return about | _oldest_json([part], findings) | metrics.channel_metrics_json(part.counts, part.rates)


def _of_node(node: Node, page: Page) -> Iterator[_Found]:
    for topic, of_topic in node.topics.items():
        for channel, part in of_topic.channels.items():
            if page.finds(topic, channel):
                yield _Found(topic, channel, part)


def _found(cluster: Cluster, page: Page, findings: Findings) -> Iterator[_Found]:
    for topic, of_topic in cluster.topics.items():
        wanted = {problem.channel for problem in findings.attention.of_topic(topic)} if page.only_problems else None
        for channel, row in of_topic.channels.items():
            if page.finds(topic, channel) and (wanted is None or channel in wanted):
                yield _Found(topic, channel, row)
