"""The last known state of each nsqd: of one that does not answer, and of one that is gone. Pure.

An nsqd that is killed disappears from the answers of nsqlookupds at once, and its messages from all sums. It is
remembered until somebody dismisses it, so that the page can say what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Any, NamedTuple

from nsqd_py.cluster.figures import ChannelCounts, TopicPart
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.roles import Standby
from nsqd_py.cluster.values import flag_in, number_in, rows_in, text_in

# The most nsqds that are remembered after they are gone; the one that was seen least recently is forgotten first.
MOST_GONE = 1000
# The most topics of each; those with the greatest depth.
MOST_TOPICS = 200
# Times of one answer differ by less, since they are computed from two clocks.
_SAME_ANSWER_S = 0.1


class LastTopic(NamedTuple):
    """A topic with its channels on one nsqd, as it was last."""

    topic: str
    depth: int
    in_flight: int
    deferred: int
    messages: int
    channels: int
    is_paused: bool


@dataclass(slots=True)
class LastKnown:
    """What an nsqd reported last. Times are in s since the epoch.

    seen_s     the time of its last answer
    is_silent  it did not answer the last request in time
    is_gone    it does not answer, and no nsqlookupd lists it
    primary    TCP address of its primary if it is a standby
    topics     taken once it is silent
    """

    address: str
    seen_s: float
    hostname: str = ""
    version: str = ""
    start_time: int = 0
    is_silent: bool = False
    is_gone: bool = False
    primary: str = ""
    figures: dict[str, int] = field(default_factory=dict)
    topics: list[LastTopic] = field(default_factory=list)

    @property
    def depth(self) -> int:
        return self.figures.get("depth", 0)


# Those that the sums of remembered topics have too.
_FIGURES_OF_TOPICS = ("depth", "in_flight", "deferred", "messages", "channels")
FIGURES = ("depth", "topic_depth", "in_flight", "deferred", "messages", "clients", "topics", "channels")


class NodeMemory:
    """Remembers all nsqds by address. Call `note_round` after each round."""

    def __init__(self) -> None:
        self.nodes: dict[str, LastKnown] = {}
        self._missing: dict[str, int] = {}

    def note_round(self, cluster: Cluster, now_s: float, time_s: float) -> None:
        """Take what the nsqds answered. `now_s` is on the clock of the cluster, `time_s` is since the epoch."""
        for address, node in cluster.nodes.items():
            if node.answered_s is None:
                continue
            seen_s = time_s - (now_s - node.answered_s)
            known = self.nodes.setdefault(address, LastKnown(address, seen_s))
            known.is_gone, known.is_silent = False, bool(node.failure or node.is_late)
            known.primary = node.role.primary if isinstance(node.role, Standby) else ""
            if node.is_whole:
                _take(known, node, seen_s)
        if not cluster.unheard_lookups:  # one of them may list what the others do not
            for known in [known for known in self.nodes.values() if not known.is_gone]:
                if known.address not in cluster.nodes:
                    self._note_removed(known)
        self._missing = self._sum_up(cluster)

    def _note_removed(self, known: LastKnown) -> None:
        """Note that an nsqd is no longer part of the cluster."""
        if not known.is_silent:  # its nsqlookupd was taken out of the configuration
            del self.nodes[known.address]
            return
        known.is_gone = True
        gone = self.gone()
        if len(gone) > MOST_GONE:
            del self.nodes[min(gone, key=lambda one: one.seen_s).address]

    def _sum_up(self, cluster: Cluster) -> dict[str, int]:
        found: dict[str, int] = {}
        for known in self.absent(cluster):
            for topic in known.topics:
                found[topic.topic] = found.get(topic.topic, 0) + topic.depth
        return found

    def gone(self) -> list[LastKnown]:
        """Return the nsqds that are no longer part of the cluster."""
        return [known for known in self.nodes.values() if known.is_gone]

    def absent(self, cluster: Cluster) -> Iterator[LastKnown]:
        """Yield all nsqds whose figures are in no sum: those that are gone, and those that are silent for long."""
        for known in self.nodes.values():
            node = cluster.nodes.get(known.address)
            if known.is_gone or (node is not None and not node.is_whole):
                yield known

    def missing_depth(self, topic: str) -> int:
        """Return the messages of a topic that waited on absent nsqds when these were last seen."""
        return self._missing.get(topic, 0)

    def only(self, cluster: Cluster, sees: Callable[[str], bool]) -> NodeMemory:
        """Return the same memory without the topics that a user does not see; `cluster` is without them too."""
        found = NodeMemory()
        for known in self.nodes.values():
            topics = [topic for topic in known.topics if sees(topic.topic)]
            figures = {name: sum(getattr(topic, name) for topic in topics) for name in _FIGURES_OF_TOPICS}
            node = cluster.nodes.get(known.address)
            if node is not None and node.is_whole:
                figures["depth"] = node.of_topics.counts[0] + node.of_channels.counts[0]
            found.nodes[known.address] = replace(known, topics=topics, figures=figures | {"topics": len(topics)})
        found._missing = found._sum_up(cluster)
        return found

    def dismiss(self, address: str) -> bool:
        """Forget an nsqd that is gone. Return False if there is none at that address."""
        known = self.nodes.get(address)
        if known is None or not known.is_gone:
            return False
        del self.nodes[address]
        return True

    def standbys(self) -> list[str]:
        """Return the addresses of the standbys: no nsqlookupd lists them."""
        return [known.address for known in self.nodes.values() if known.primary]

    # ---- in the history file

    def dump(self) -> list[dict[str, Any]]:
        """Return a document for `load`."""
        return [
            {
                "address": known.address,
                "seen_s": known.seen_s,
                "hostname": known.hostname,
                "version": known.version,
                "start_time": known.start_time,
                "is_gone": known.is_gone,
                "primary": known.primary,
                "figures": known.figures,
                "topics": [topic._asdict() for topic in known.topics],
            }
            for known in self.nodes.values()
        ]

    def load(self, document: Any) -> None:
        """Add what `dump` returned. An nsqd that does not answer is gone from the next round on."""
        for row in rows_in({"nodes": document}, "nodes"):
            address, seen_s = text_in(row, "address"), row.get("seen_s")
            if not address or not isinstance(seen_s, float | int):
                continue
            self.nodes[address] = LastKnown(
                address,
                float(seen_s),
                text_in(row, "hostname"),
                text_in(row, "version"),
                number_in(row, "start_time"),
                True,
                flag_in(row, "is_gone"),
                text_in(row, "primary"),
                {name: number_in(row.get("figures"), name) for name in FIGURES},
                [_topic(topic) for topic in rows_in(row, "topics")],
            )


def _topic(row: Mapping[str, Any]) -> LastTopic:
    return LastTopic(
        text_in(row, "topic"),
        number_in(row, "depth"),
        number_in(row, "in_flight"),
        number_in(row, "deferred"),
        number_in(row, "messages"),
        number_in(row, "channels"),
        flag_in(row, "is_paused"),
    )


def _take(known: LastKnown, node: Node, seen_s: float) -> None:
    """Take the figures of the last answer, and its topics if the next one is late."""
    if not known.figures or seen_s > known.seen_s + _SAME_ANSWER_S:
        channels = ChannelCounts._make(node.of_channels.counts)
        topic_depth, _, messages = node.of_topics.counts
        known.seen_s, known.start_time = seen_s, node.start_time
        known.hostname, known.version = str(node.told.get("hostname", "")), node.version
        known.figures = {
            "depth": topic_depth + channels.depth,
            "topic_depth": topic_depth,
            "in_flight": channels.in_flight,
            "deferred": channels.deferred,
            "messages": messages,
            "clients": channels.clients,
            "topics": len(node.topics),
            "channels": sum(len(part.channels) for part in node.topics.values()),
        }
        known.topics = []
    if known.is_silent and not known.topics:
        found = (_last_topic(name, part) for name, part in node.topics.items())
        known.topics = nlargest(MOST_TOPICS, found, key=lambda topic: topic.depth)


def _last_topic(name: str, part: TopicPart) -> LastTopic:
    own, sums = part.counts, ChannelCounts._make(part.channel_counts)
    return LastTopic(name, own[0] + sums.depth, sums.in_flight, sums.deferred, own[2], len(part.channels), part.is_paused)


NOTHING_KNOWN = NodeMemory()
