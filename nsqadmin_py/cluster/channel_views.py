"""The JSON of a list of all channels. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any, NamedTuple

from nsqadmin_py.cluster.findings import NO_FINDINGS, Findings
from nsqadmin_py.cluster.view import Json, NotKnown, View, latency_json, oldest_json
from nsqadmin_py.cluster.views import Page, channel_changed, channel_figures, channel_json
from nsqd_py.cluster.figures import ChannelCounts, ChannelRow, Part, Rates
from nsqd_py.cluster.model import Cluster, Node


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


def _age(found: _Found, _: Findings) -> float:
    return -found.row.oldest_ns if found.row.oldest_ns else -inf


def _drain_s(found: _Found, findings: Findings) -> float:
    drain_s, _ = findings.trends.drain(found.topic, found.channel)
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
    "oldest_age_s": _age,
    "drain_s": _drain_s,
}


def channel_list(cluster: Cluster, page: Page, findings: Findings = NO_FINDINGS, node: str = "") -> View:
    """Return a page of the channels whose name, or whose topic's name, contains the searched text.

    With `node` they are those of one nsqd, with its figures. Raises NotKnown if there is no such nsqd.
    """
    if node and node not in cluster.nodes:
        raise NotKnown("NODE_NOT_FOUND")
    matching = _of_node(cluster.nodes[node], page) if node else _found(cluster, page, findings)
    found = sorted(matching, key=lambda one: (one.topic, one.channel))
    sort = SORTS[page.sort]
    found.sort(key=lambda one: sort(one, findings), reverse=page.downwards)
    view = View({"total": len(found), "offset": page.offset, "limit": page.limit})
    for topic, channel, row in found[page.offset : page.offset + page.limit]:
        key = f"{len(topic)}:{topic}/{channel}"
        if isinstance(row, Part):
            view.add(key, *_part_row(cluster, topic, channel, row, findings))
        else:
            json = channel_json(cluster, topic, channel, findings)
            view.add(key, json, channel_changed(cluster, row, json))
    return view


def _part_row(cluster: Cluster, topic: str, channel: str, part: Part, findings: Findings) -> tuple[Json, int]:
    """Return the row of a channel on one nsqd, and the tick of its last change: the age changes in every tick."""
    oldest_s = oldest_json([part])
    about = {"topic": topic, "channel": channel, "paused": part.is_paused, "oldest_s": oldest_s}
    about |= {"oldest_age_s": findings.age_s(oldest_s), "latency": latency_json(part.latency)}
    figures = channel_figures(ChannelCounts._make(part.counts), part.rates)
    return about | figures, part.changed if oldest_s is None else cluster.tick


def _of_node(node: Node, page: Page) -> Iterator[_Found]:
    for topic, of_topic in node.topics.items():
        for channel, part in of_topic.channels.items():
            if not page.search or page.search in topic.lower() or page.search in channel.lower():
                yield _Found(topic, channel, part)


def _found(cluster: Cluster, page: Page, findings: Findings) -> Iterator[_Found]:
    for topic, of_topic in cluster.topics.items():
        wanted = {problem.channel for problem in findings.attention.of_topic(topic)} if page.only_problems else None
        for channel, row in of_topic.channels.items():
            is_searched = not page.search or page.search in topic.lower() or page.search in channel.lower()
            if is_searched and (wanted is None or channel in wanted):
                yield _Found(topic, channel, row)
