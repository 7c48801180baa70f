"""The cluster as a user sees it who may not view all topics: as if the other topics did not exist. Pure.

All sums are those of the visible topics. So no view has to know about permissions, and none can forget them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from nsqadmin_py.cluster.attention import Attention, Found
from nsqadmin_py.cluster.findings import Findings, all_problems
from nsqd_py.cluster.figures import NO_CHANNEL, NO_TOPIC, Part, Sum
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.roles import without_counts

Sees = Callable[[str], bool]


class VisibleCluster(Cluster):
    """A cluster without the hidden topics, as of one round. Its topics are those of the whole cluster."""

    def __init__(self, whole: Cluster, sees: Sees) -> None:
        super().__init__()
        sees = cache(sees)  # each name is on many nsqds
        self.tick = whole.tick
        self.topics = {name: row for name, row in whole.topics.items() if sees(name)}
        self.nodes = {address: _visible_node(node, sees) for address, node in whole.nodes.items()}
        self.failed_lookups = whole.failed_lookups
        self.lookups, self.unheard_lookups = whole.lookups, whole.unheard_lookups
        self.shared = {address: row._replace(topics=tuple(filter(sees, row.topics))) for address, row in whole.shared.items()}
        self.is_settled = whole.is_settled

    def parts_of(self, topic: str, channel: str = "") -> Iterator[tuple[Node, Part]]:
        """As of a whole cluster, but without parts that have come since this one was made."""
        row = self.topics.get(topic)
        found = row if not channel or row is None else row.channels.get(channel)
        for address, part in found.parts.items() if found is not None else ():
            node = self.nodes.get(address)
            if node is not None and topic in node.topics:
                yield node, part


def _visible_node(node: Node, sees: Sees) -> Node:
    told = dict(node.told)
    if told.get("topics"):
        told["topics"] = [row for row in told["topics"] if sees(row["topic"])]
    found = replace(
        node,
        told=told,
        topics={name: part for name, part in node.topics.items() if sees(name)},
        of_topics=Sum(NO_TOPIC, changed=node.of_topics.changed),
        of_channels=Sum(NO_CHANNEL, changed=node.of_channels.changed),
        latency=(),
        role=without_counts(node.role),
        health=node.health.partition(" ")[0],  # what follows may name a topic
    )
    for _ in found.adding_up():
        pass
    return found


def visible_findings(whole: Findings, cluster: Cluster, sees: Sees, now_s: float) -> Findings:
    """Return what nsqadmin would conclude from a visible cluster."""
    memory = whole.memory.only(cluster, sees)
    visible = Findings(memory, whole.trends, Attention(), whole.limits, whole.time_s)
    found = Found(all_problems(cluster, visible, now_s))
    visible.attention = whole.attention.like(found, whole.time_s, cluster.tick)
    return visible
