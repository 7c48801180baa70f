"""Rows over all nsqds or for each of them, made of the observed cluster; their history. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nsq_tools.stat.rows import Name, Row
from nsqd_py.clock import wall_ns
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.statistics import MILLI, NO_CHANNEL, QUIET, UNKNOWN, ChannelCounts, Numbers, Part, Rates, TopicPart, plus
from nsqd_py.runtime.logs import one_line

HISTORY_LENGTH = 120
_TREND_LENGTH = 4  # rounds; a single message that waits for its consumer does not count as growth
# An nsqd that has not answered for longer is shown as failed; until then its last answer is shown.
_LONG_S = 1.0
_NS_PER_S = 1e9


@dataclass(slots=True)
class _History:
    """The history of a row."""

    depths: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    growths: deque[float] = field(default_factory=lambda: deque(maxlen=_TREND_LENGTH))


@dataclass(slots=True)
class _Sum:
    counts: Numbers = NO_CHANNEL
    rates: Numbers | None = None
    is_paused: bool = False
    oldest_ns: int = 0
    log_bytes: int | None = 0  # None if one of the nsqds does not report it

    def add(self, counts: Numbers, part: Part, rates: Numbers) -> None:
        self.counts = plus(self.counts, counts)
        if part.rates is not UNKNOWN:
            self.rates = rates if self.rates is None else plus(self.rates, rates)
        self.is_paused |= part.is_paused
        if part.oldest_ns:
            self.oldest_ns = min(self.oldest_ns or part.oldest_ns, part.oldest_ns)

    def add_log(self, part: Part) -> None:
        """Add the size of the log, which only topics have."""
        if not isinstance(part, TopicPart) or part.log_bytes < 0:
            self.log_bytes = None
        elif self.log_bytes is not None:
            self.log_bytes += part.log_bytes


class Model:
    """The rows of a cluster. With `per_node`, each nsqd has separate rows; with `channel`, only that channel.

    wall_clock  returns the time in ns since the epoch, for the ages of messages
    """

    def __init__(
        self, cluster: Cluster, *, channel: str = "", per_node: bool = False, wall_clock: Callable[[], int] = wall_ns
    ) -> None:
        self._cluster = cluster
        self._wall_clock = wall_clock
        self._channel = channel
        self._per_node = per_node
        self._histories: dict[tuple[Name, str], _History] = {}
        self.rows: list[Row] = []

    def end_round(self) -> None:
        """Compute `rows`, sorted by name, and add their depths to the history."""
        answering = [node for node in self._cluster.nodes.values() if node.answered_s is not None and not node.failure]
        if self._per_node:
            rows = [row for node in answering for row in self._sums([node], one_line(node.address))]
        else:
            rows = list(self._sums(answering, ""))
        rows.sort(key=lambda row: (row.name, row.node))
        self.rows = [self._with_history(row) for row in rows]
        self._prune()

    def _sums(self, nodes: Sequence[Node], label: str) -> Iterator[Row]:
        """Yield the sums over these nsqds."""
        sums: dict[Name, _Sum] = {}
        for node in nodes:
            for name, part in self._parts(node):
                row = sums.get(name)
                if row is None:
                    row = sums[name] = _Sum()
                if name.channel:
                    row.add(part.counts, part, part.rates)
                else:
                    depth, backend_depth, messages = part.counts
                    counts = NO_CHANNEL._replace(depth=depth, backend_depth=backend_depth, messages=messages)
                    row.add(counts, part, part.rates._replace(finished=part.rates.left))
                    row.add_log(part)
        for name, row in sums.items():
            rates = None if row.rates is None else Rates._make(row.rates)
            age_s = max(0.0, (self._wall_clock() - row.oldest_ns) / _NS_PER_S) if row.oldest_ns else None
            counts = ChannelCounts._make(row.counts)
            log_bytes = None if name.channel else row.log_bytes
            yield Row(name, label, counts, rates, row.is_paused, oldest_age_s=age_s, log_bytes=log_bytes)

    def _parts(self, node: Node) -> Iterator[tuple[Name, Part]]:
        for topic, part in node.topics.items():
            if not self._channel:
                yield Name(one_line(topic)), part
            for channel, channel_part in part.channels.items():
                if self._channel in ("", channel):
                    yield Name(one_line(topic), one_line(channel)), channel_part

    def _with_history(self, row: Row) -> Row:
        history = self._histories.setdefault((row.name, row.node), _History())
        history.depths.append(row.counts.depth)
        growth = (row.rates or QUIET).growth
        history.growths.append(growth)
        grows = growth >= 0 and sum(history.growths) > 0 and row.counts.depth > 0
        drain_s = _drain_s(row.counts.depth, sum(history.growths) / len(history.growths) / MILLI)
        return replace(row, drain_s=drain_s, depths=tuple(history.depths), depth_grows=grows)

    def _prune(self) -> None:
        """Remove the histories of topics and channels that no nsqd has. An nsqd that currently fails still counts."""
        if len(self._histories) == len(self.rows):
            return
        known = {
            (name, one_line(node.address) if self._per_node else "")
            for node in self._cluster.nodes.values()
            for name, _ in self._parts(node)
        }
        self._histories = {key: history for key, history in self._histories.items() if key in known}


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
    return sorted(_node_part(node, part) for node, part in cluster.parts_of(topic) if isinstance(part, TopicPart))


def _node_part(node: Node, part: TopicPart) -> NodePart:
    of_channels = ChannelCounts._make(part.channel_counts)
    return NodePart(
        one_line(node.address),
        part.counts[0] + of_channels.depth,
        None if part.rates is UNKNOWN else part.rates.messages / MILLI,
        part.log_bytes if part.log_bytes >= 0 else None,
        of_channels.clients,
        one_line(node.failure),
    )


def total_depths(rows: Iterable[Row]) -> list[float]:
    """Return the sums of the depths of these rows in the latest rounds, the oldest first."""
    histories = [row.depths for row in rows]
    longest = max(map(len, histories), default=0)
    padded = ((0.0,) * (longest - len(depths)) + depths for depths in histories)
    return [sum(depths) for depths in zip(*padded, strict=True)]


def _drain_s(depth: int, growth: float) -> float:
    if not depth:
        return 0.0
    return depth / -growth if growth < 0 else math.inf


class Failure(NamedTuple):
    """A server without an answer, and the reason."""

    kind: str
    address: str
    reason: str

    @property
    def who(self) -> str:
        return f"{self.kind} {self.address}"

    def __str__(self) -> str:
        return f"{self.who}: {self.reason}"


def failures_of(cluster: Cluster, now_s: float) -> list[Failure]:
    failures = [Failure("nsqlookupd", address, reason) for address, reason in cluster.failed_lookups.items()]
    failures += [Failure("nsqd", node.address, node.failure) for node in cluster.nodes.values() if node.failure]
    for node in cluster.nodes.values():
        waited_s = now_s - node.asked_s
        if node.is_late and not node.failure and waited_s > _LONG_S:
            failures.append(Failure("nsqd", node.address, f"no answer for {waited_s:.0f}s"))
    return [Failure(kind, one_line(address), one_line(reason)) for kind, address, reason in failures]
