"""The conclusions of nsqadmin from the rounds of its observer. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

from nsqadmin_py.cluster.attention import Attention, FoundProblems
from nsqadmin_py.cluster.last_known import NodeMemory
from nsqd_py.cluster import stores
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.problems.finding import problems
from nsqd_py.cluster.problems.limits import Limits
from nsqd_py.cluster.problems.of_nodes import is_only_draining
from nsqd_py.cluster.problems.trends import Trends
from nsqd_py.cluster.roles import without_counts
from nsqd_py.cluster.statistics import Totals
from nsqd_py.cluster.values import Pace

Sees = Callable[[str], bool]


@dataclass(slots=True)
class Findings:
    """Remembered nsqds, the trends of all channels, and all problems. `time_s` is that of the last round."""

    memory: NodeMemory = field(default_factory=NodeMemory)
    trends: Trends = field(default_factory=Trends)
    attention: Attention = field(default_factory=lambda: Attention(FoundProblems(), 0.0))
    time_s: float = 0.0
    limits: Limits = field(default_factory=Limits)

    def note_round(self, cluster: Cluster, now_s: float, time_s: float, pace: Pace = iter) -> None:
        """Take a round of the cluster. `now_s` is on its clock, `time_s` is since the epoch.

        Greenlets that run at the pace must not change the cluster.
        """
        before = self.attention if self.time_s else None
        self.time_s = time_s
        self.memory.note_round(cluster, now_s, time_s, pace)
        self.trends.note_round(cluster, now_s, pace)
        found = problems(cluster, self.memory, self.trends, now_s, time_s, self.limits)
        self.attention = Attention(FoundProblems(pace(found)), time_s, before)

    def age_s(self, oldest_s: float | None) -> float | None:
        """Return the time since a message was published, as of the last round; None if that is unknown."""
        if oldest_s is None:
            return None
        return max(0.0, round(self.time_s - oldest_s, 1))


class VisibleCluster(Cluster):
    """A cluster without the hidden topics, as of one round. Its topics are those of the whole cluster."""

    def __init__(self, whole: Cluster, sees: Sees, pace: Pace = iter) -> None:
        super().__init__()
        vars(self).update(vars(whole))
        sees = cache(sees)  # each name is on many nsqds
        self.topics = {name: row for name, row in whole.topics.items() if sees(name)}
        nodes = list(whole.nodes.items())
        self.nodes = {address: _visible_node(node, sees) for address, node in pace(nodes)}
        self.shared = {}
        for address, row in whole.shared.items():
            topics = tuple(filter(sees, row.topics))
            self.shared[address] = row._replace(topics=topics)


def _visible_node(node: Node, sees: Sees) -> Node:
    reported = dict(node.reported)
    if reported.get("topics"):
        reported["topics"] = [row for row in reported["topics"] if sees(row["topic"])]
    found = replace(
        node,
        reported=reported,
        topics={name: part for name, part in node.topics.items() if sees(name)},
        totals=Totals(),
        latency=(),
        role=without_counts(node.role),
        store=stores.without_counts(node.store),
        health="OK"
        if is_only_draining(node)
        else node.health.partition(" ")[0],  # what follows may name a topic
        drain=None,  # it counts messages of all topics
    )
    for _ in found.adding_up():
        pass
    return found


def visible_findings(whole: Findings, cluster: Cluster, now_s: float) -> Findings:
    """Return what nsqadmin would conclude from a visible cluster."""
    memory = whole.memory.only(cluster)
    found = problems(cluster, memory, whole.trends, now_s, whole.time_s, whole.limits)
    attention = Attention(FoundProblems(found), whole.time_s, whole.attention)
    return replace(whole, memory=memory, attention=attention)
