"""The JSON of the cluster that the page shows. Pure.

Names and texts come from other programs: never treat them as markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, TypeVar

from nsqadmin_py.cluster.attention import badges_json
from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.cluster.last_known import NodeMemory
from nsqadmin_py.cluster.metrics import (
    RATES,
    Json,
    View,
    channel_metrics_json,
    latency_json,
    metrics_json,
    oldest_json,
)
from nsqadmin_py.cluster.node_views import tombstones_of, version_of
from nsqadmin_py.refusals import NotThere, Query, choice_of, number_of
from nsqd_py.cluster.counts import ChannelCounts, Rates
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.problems import states
from nsqd_py.cluster.problems.of_channels import DEAD, waiting_dead_letters
from nsqd_py.cluster.roles import KnownStandby
from nsqd_py.cluster.statistics import ChannelRow, Part, Sum, TopicRow
from nsqd_py.cluster.values import Pace

DEFAULT_LIMIT = 100
MOST_LIMIT = 1000
SORTABLE = (
    "topic",
    "harm",
    "depth",
    "in_flight",
    "deferred",
    "messages",
    *RATES,
    "requeued",
    "timed_out",
    "clients",
    "channels",
    "nodes",
    "paused",
)
_MOST_OFFSET = 10**9 - 1
_DEPTH = 0  # of TopicCounts and ChannelCounts

T = TypeVar("T")


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
    def read(cls, query: Query, sortable: Container[str] = SORTABLE) -> Page:
        """Read `search`, `sort`, `order` (asc, desc), `offset`, `limit` and `only` (problems).

        Raises RequestRefused.
        """
        sort = choice_of(query, "sort", sortable, "topic")
        only = choice_of(query, "only", ("", "problems"))
        order = choice_of(query, "order", ("asc", "desc"), "asc" if sort == "topic" else "desc")
        limit = number_of(query, "limit", DEFAULT_LIMIT, MOST_LIMIT, least=1)
        offset = number_of(query, "offset", 0, _MOST_OFFSET)
        return cls(query.get("search", "").lower(), sort, order == "desc", offset, limit, bool(only))

    def finds(self, *names: str) -> bool:
        """True if one of the names contains the searched text."""
        if not self.search:
            return True
        return any(self.search in name.lower() for name in names)

    def part(self, found: Sequence[T]) -> Sequence[T]:
        """Return those that the page shows."""
        return found[self.offset : self.offset + self.limit]

    def view(self, total: int, rows: dict[str, Json]) -> View:
        return View({"total": total, "offset": self.offset, "limit": self.limit}, rows)


# ---- the cluster


def overview(cluster: Cluster, now_s: float, findings: Findings) -> View:
    """Return sums over the cluster, and the states of its nsqds and nsqlookupds.

    `missing_depth` counts the messages on nsqds that do not answer, which are not in the sums.
    """
    nodes = cluster.nodes.values()
    topics = cluster.topics.values()
    channels = [channel for topic in topics for channel in topic.channels.values()]
    sums = cluster.totals
    found = node_states(cluster, now_s, findings.memory)
    versions = Counter(node.project_version or version_of(node) for node in nodes)
    head = {
        "topics": len(topics),
        "channels": len(channels),
        "nodes": len(nodes),
        "nodes_ok": found[states.OK],
        "nodes_slow": found[states.SLOW],
        "nodes_failed": found[states.FAILED],
        "problems": findings.attention.counts.total(),
        "standbys": sum(isinstance(node.role, KnownStandby) for node in nodes),
        "nodes_gone": found[states.GONE],
        "nodes_stopped": found[states.STOPPED],
        "nodes_draining": sum(node.drain is not None for node in nodes),
        **_oldest_json([*topics, *channels], findings),
        "missing_depth": sum(known.depth for known in findings.memory.absent(cluster)),
        "versions": dict(sorted(versions.items())),
        "failed_lookups": dict(sorted(cluster.failed_lookups.items())),
        "channel_messages": ChannelCounts._make(sums.channels).messages,  # counted as by Go's nsqadmin
        **metrics_json(sums),
    }
    return View(head)


def node_states(cluster: Cluster, now_s: float, memory: NodeMemory) -> Counter[str]:
    """Count nsqds by state, also those that are gone and not dismissed yet."""
    found = Counter(states.state_of(node, now_s) for node in cluster.nodes.values())
    found.update(known.state_of_gone for known in memory.gone())
    return found


def _oldest_json(rows: Iterable[Sum | Part], findings: Findings) -> Json:
    """Return when the oldest waiting message was published, and how long ago, in s; null if unknown."""
    oldest_s = oldest_json(rows)
    return {"oldest_s": oldest_s, "oldest_age_s": findings.age_s(oldest_s)}


# ---- topics


def _topic_json(name: str, row: TopicRow, findings: Findings) -> Json:
    channels = row.channels.values()
    return {
        "topic": name,
        **metrics_json(row.totals),
        "paused": row.paused_parts > 0,
        "paused_channels": sum(channel.paused_parts > 0 for channel in channels),
        "channels": len(channels),
        "nodes": len(row.parts),
        **_oldest_json([row, *channels], findings),
        "problems": badges_json(findings.attention.of_topic(name), is_topic=True),
    }


def topic_list(cluster: Cluster, page: Page, findings: Findings) -> View:
    """Return a page of the topics whose name, or a channel's name, contains the searched text."""
    names = sorted(name for name, row in cluster.topics.items() if page.finds(name, *row.channels))
    if page.only_problems:
        names = [name for name in names if findings.attention.of_topic(name)]

    # The sort is stable: equal rows stay in the order of names.
    def key(name: str) -> Any:
        return _topic_key(page.sort, name, cluster.topics[name], findings)

    names.sort(key=key, reverse=page.downwards)
    rows = {}
    for name in page.part(names):
        rows[name] = _topic_json(name, cluster.topics[name], findings)
    return page.view(len(names), rows)


def _topic_key(sort: str, name: str, row: TopicRow, findings: Findings) -> Any:
    """Return what a list of topics is sorted by."""
    if sort == "topic":
        return name
    if sort == "harm":
        harm = findings.attention.harm(name)
        if not harm:
            return harm, 0
        return harm, row.totals.channels[_DEPTH] + row.counts[_DEPTH]
    return _topic_json(name, row, findings)[sort]


def topic(cluster: Cluster, name: str, now_s: float, findings: Findings, pace: Pace = iter) -> View:
    """Return a topic, its channels (`channel:…`) and its nsqds (`node:…`). Raises NotThere."""
    row = _topic_of(cluster, name)
    view = View(_topic_json(name, row, findings))
    view.head["latency"] = latency_json(row.latency)
    dead_letters = name if name.endswith(DEAD) else name + DEAD
    view.head["dead_letters"] = waiting_dead_letters(cluster.topics.get(dead_letters))
    for channel_name in sorted(row.channels):
        view.rows[f"channel:{channel_name}"] = channel_json(cluster, name, channel_name, findings)
    for node, part in pace([(node, node.topics[name]) for node, _ in cluster.parts_of(name)]):
        about = {"tombstoned": name in tombstones_of(node), "channels": len(part.channels)}
        metrics = metrics_json(part.totals)
        view.rows[f"node:{node.address}"] = _part_json(node, part, now_s) | about | metrics
    return view


def _topic_of(cluster: Cluster, name: str) -> TopicRow:
    row = cluster.topics.get(name)
    if row is None:
        raise NotThere("TOPIC_NOT_FOUND")
    return row


def _part_json(node: Node, part: Part, now_s: float) -> Json:
    """Return the keys of an nsqd that are shown next to the metrics of its part of a topic or channel."""
    return {
        "node": node.address,
        "hostname": node.reported.get("hostname", ""),
        "state": states.state_of(node, now_s),
        "paused": part.is_paused,
        "oldest_s": oldest_json([part]),
        "latency": latency_json(part.latency),
    }


# ---- channels


def channel_json(cluster: Cluster, topic: str, name: str, findings: Findings) -> Json:
    """Return the row of a channel over all nsqds."""
    row = cluster.topics[topic].channels[name]
    drain_s = findings.trends.drain_s(topic, name)
    return {
        "topic": topic,
        "channel": name,
        "paused": row.paused_parts > 0,
        "nodes": len(row.parts),
        **_oldest_json([row], findings),
        "problems": badges_json(one for one in findings.attention.of_topic(topic) if one.channel == name),
        "drain_s": None if drain_s is None else round(drain_s, 1),  # None if that is never
        "latency": latency_json(row.latency),
        **channel_metrics_json(row),
    }


def channel(
    cluster: Cluster, topic: str, name: str, now_s: float, findings: Findings, pace: Pace = iter
) -> View:
    """Return a channel, and its nsqds by address. Raises NotThere."""
    if name not in _topic_of(cluster, topic).channels:
        raise NotThere("CHANNEL_NOT_FOUND")
    view = View(channel_json(cluster, topic, name, findings))
    for node, part in pace(list(cluster.parts_of(topic, name))):
        view.rows[node.address] = _part_json(node, part, now_s) | channel_metrics_json(part)
    return view


class _Found(NamedTuple):
    topic: str
    channel: str
    row: ChannelRow | Part


def channel_list(cluster: Cluster, page: Page, findings: Findings, node: str = "") -> View:
    """Return a page of the channels whose name, or whose topic's name, contains the searched text.

    With `node` they are those of one nsqd, with its metrics. Raises NotThere if there is no such nsqd.
    """
    if node and node not in cluster.nodes:
        raise NotThere("NODE_NOT_FOUND")
    found = list(_matching(cluster, page, findings, node))
    found.sort(key=lambda one: (one.topic, one.channel))
    sort = SORTS[page.sort]
    found.sort(key=lambda one: sort(one, findings), reverse=page.downwards)
    rows = {
        f"{len(one.topic)}:{one.topic}/{one.channel}": _row_json(cluster, one, findings)
        for one in page.part(found)
    }
    return page.view(len(found), rows)


def _matching(cluster: Cluster, page: Page, findings: Findings, node: str) -> Iterator[_Found]:
    if node:
        topics: dict[str, Any] = cluster.nodes[node].topics
    else:
        topics = cluster.topics
    for topic, of_topic in topics.items():
        channels = of_topic.channels.items()
        if page.only_problems and not node:
            named = {problem.channel for problem in findings.attention.of_topic(topic)}
            channels = [(name, row) for name, row in channels if name in named]
        for name, row in channels:
            if page.finds(topic, name):
                yield _Found(topic, name, row)


def _row_json(cluster: Cluster, found: _Found, findings: Findings) -> Json:
    """Return the row of a channel: over all nsqds, or on one."""
    topic, name, row = found
    if not isinstance(row, Part):
        return channel_json(cluster, topic, name, findings)
    return {
        "topic": topic,
        "channel": name,
        "paused": row.is_paused,
        "latency": latency_json(row.latency),
        **_oldest_json([row], findings),
        **channel_metrics_json(row),
    }


# ---- what a list of channels is sorted by

Sort = Callable[[_Found, Findings], Any]


def _count(name: str) -> Sort:
    index = ChannelCounts._fields.index(name)
    return lambda found, _: found.row.counts[index]


def _rate(name: str) -> Sort:
    index = Rates._fields.index(name)
    return lambda found, _: found.row.rates[index]


def _harm(found: _Found, findings: Findings) -> tuple[int, int]:
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
    "harm": _harm,
}
