"""Rows over all nsqds or for each of them, made of the observed cluster; their history. Pure."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import NamedTuple

from nsq_tools.stat.rows import Name, Row
from nsqd_py.clock import wall_ns
from nsqd_py.cluster.counts import ChannelCounts, Rates
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.statistics import MILLI, NO_CHANNEL, NO_TOPIC, QUIET, UNKNOWN, Part, TopicPart, sum_of
from nsqd_py.runtime.logs.daemon_log import one_line

HISTORY_LENGTH = 120
_TREND_LENGTH = 4  # rounds; a single message that waits for its consumer does not count as growth
_NS_PER_S = 1e9


class _History:
    """The depths of a row in the latest rounds, and how fast they grew."""

    def __init__(self) -> None:
        self.depths: deque[float] = deque(maxlen=HISTORY_LENGTH)
        self._growths: deque[float] = deque(maxlen=_TREND_LENGTH)

    def add(self, depth: int, growth: int) -> None:
        self.depths.append(depth)
        self._growths.append(growth)

    @property
    def grows(self) -> bool:
        return self._growths[-1] >= 0 and sum(self._growths) > 0 and self.depths[-1] > 0

    @property
    def drain_s(self) -> float:
        """The time until nothing waits, at the rate of the latest rounds; infinite if that is never."""
        depth = self.depths[-1]
        if not depth:
            return 0.0
        growth = sum(self._growths) / len(self._growths) / MILLI
        if growth < 0:
            return depth / -growth
        return math.inf


class Model:
    """The rows of a cluster. With `per_node`, each nsqd has separate rows; with `channel`, only that channel.

    wall_clock  returns the time in ns since the epoch, for the ages of messages
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        channel: str = "",
        per_node: bool = False,
        wall_clock: Callable[[], int] = wall_ns,
    ) -> None:
        self._cluster = cluster
        self._wall_clock = wall_clock
        self._channel = channel
        self._per_node = per_node
        self._histories: dict[tuple[Name, str], _History] = {}
        self.rows: list[Row] = []

    def end_round(self) -> None:
        """Compute `rows`, sorted by name, and add their depths to the history."""
        nodes = self._cluster.nodes.values()
        answering = [node for node in nodes if node.answered_s is not None and not node.failure]
        rows: list[Row] = []
        if self._per_node:
            for node in answering:
                rows += self._sums([node], one_line(node.address))
        else:
            rows += self._sums(answering, "")
        self.rows = sorted(rows, key=attrgetter("name", "node"))
        self._prune()

    def _sums(self, nodes: Sequence[Node], label: str) -> Iterator[Row]:
        """Yield the sums over these nsqds."""
        found: defaultdict[Name, list[Part]] = defaultdict(list)
        for node in nodes:
            for name, part in self._parts(node):
                found[name].append(part)
        for name, parts in found.items():
            yield self._row(name, label, parts)

    def _row(self, name: Name, label: str, parts: Sequence[Part]) -> Row:
        known = [part.rates for part in parts if part.rates is not UNKNOWN]
        rates = None
        if known:
            rates = Rates._make(sum_of(known, QUIET))
        log_bytes = None
        if name.channel:
            sums = sum_of([part.counts for part in parts], NO_CHANNEL)
            counts = ChannelCounts._make(sums)
        else:
            depth, backend_depth, messages = sum_of([part.counts for part in parts], NO_TOPIC)
            counts = NO_CHANNEL._replace(depth=depth, backend_depth=backend_depth, messages=messages)
            rates = rates and rates._replace(finished=rates.left)
            log_bytes = _log_bytes(parts)
        oldest_ns = min((part.oldest_ns for part in parts if part.oldest_ns), default=None)
        age_s = None
        if oldest_ns is not None:
            age_s = max(0.0, (self._wall_clock() - oldest_ns) / _NS_PER_S)
        history = self._histories.setdefault((name, label), _History())
        history.add(counts.depth, (rates or QUIET).growth)
        return Row(
            name,
            label,
            counts,
            rates,
            any(part.is_paused for part in parts),
            tuple(history.depths),
            history.grows,
            age_s,
            history.drain_s,
            log_bytes,
        )

    def _parts(self, node: Node) -> Iterator[tuple[Name, Part]]:
        for topic, part in node.topics.items():
            if not self._channel:
                yield Name(one_line(topic)), part
            for channel, channel_part in part.channels.items():
                if self._channel in ("", channel):
                    yield Name(one_line(topic), one_line(channel)), channel_part

    def _prune(self) -> None:
        """Remove the histories of topics and channels that no nsqd has. An nsqd that currently fails still counts."""
        if len(self._histories) == len(self.rows):
            return
        known = set()
        for node in self._cluster.nodes.values():
            address = one_line(node.address) if self._per_node else ""
            known |= {(name, address) for name, _ in self._parts(node)}
        self._histories = {key: history for key, history in self._histories.items() if key in known}


def _log_bytes(parts: Sequence[Part]) -> int | None:
    """Return the size of the logs of a topic; None if one of the nsqds does not report it."""
    sizes = [part.log_bytes for part in parts if isinstance(part, TopicPart)]
    if min(sizes) >= 0:
        return sum(sizes)
    return None


class NodePart(NamedTuple):
    """A topic on one nsqd. `depth` includes its channels; `failure` is why the nsqd does not answer.

    messages_per_s, log_bytes  None if they are not known
    """

    address: str
    depth: int = 0
    messages_per_s: float | None = None
    log_bytes: int | None = None
    clients: int = 0
    failure: str = ""


def node_parts(cluster: Cluster, topic: str) -> list[NodePart]:
    """Return the parts of a topic, by the address of the nsqd."""
    return sorted(
        _node_part(node, part) for node, part in cluster.parts_of(topic) if isinstance(part, TopicPart)
    )


def _node_part(node: Node, part: TopicPart) -> NodePart:
    of_channels = ChannelCounts._make(part.channel_counts)
    rate = None
    if part.rates is not UNKNOWN:
        rate = part.rates.messages / MILLI
    return NodePart(
        one_line(node.address),
        part.counts[0] + of_channels.depth,
        rate,
        _log_bytes([part]),
        of_channels.clients,
        one_line(node.failure),
    )


def total_depths(rows: Iterable[Row]) -> list[float]:
    """Return the sums of the depths of these rows in the latest rounds, the oldest first."""
    latest_first = (reversed(row.depths) for row in rows)
    by_round = zip_longest(*latest_first, fillvalue=0.0)
    sums = [sum(depths) for depths in by_round]
    return sums[::-1]
