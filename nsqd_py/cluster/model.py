"""The current state of the cluster: its nodes, and the topics and channels over all of them. Pure.

Rates are computed for each nsqd over the time between two answers of that nsqd, and then added. So an nsqd that answers
late, restarts or fails for a while does not distort them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from sys import intern
from typing import Any

from nsqd_py.cluster.counts import Rates
from nsqd_py.cluster.producers import SharedAddress, tcp_address
from nsqd_py.cluster.roles import NodeInGroup, Pair, Role, pairs, read_role
from nsqd_py.cluster.statistics import (
    DROPPED,
    MILLI,
    NO_CHANNEL,
    NO_TOPIC,
    NOT_REPORTED,
    QUIET,
    UNKNOWN,
    ChannelRow,
    Latency,
    Numbers,
    Part,
    Sum,
    TopicPart,
    TopicRow,
    Totals,
    channel_metrics,
    channel_rates,
    read_damage,
    read_latency,
    read_time_ns,
    topic_metrics,
    topic_rates,
    total,
    totals_of,
    worst,
)
from nsqd_py.cluster.stores import Store, read_store
from nsqd_py.cluster.values import MOST_COUNT, Statistics, flag_in, number_in, text_in

# An answer that takes this long is slow.
SLOW_ANSWER_S = 1.5
# If an nsqd has not answered for this long, its statistics are removed from all sums.
FORGET_AFTER_S = 30.0
# If an nsqd has not answered at all for this long after the start, the cluster counts as settled without it.
_SETTLED_AFTER_S = 30.0
# If an nsqd has not answered for this many rounds, its rates are removed from all sums.
_QUIET_AFTER_ROUNDS = 3
# The topics and channels of an answer that are processed before other greenlets run: about 1 ms.
_ROWS_AT_A_TIME = 100
_TOPICS_AT_A_TIME = 1000
# What our nsqd reports of messages that no consumer finishes.
_HELD_KEYS = frozenset(("most_attempts", "stalled_timestamp", "dead_letter_error"))


class BadStats(Exception):
    """The answer is not that of an nsqd; str(error) says why."""


@dataclass(slots=True)
class Drain:
    """The drain of an nsqd. Times are in s of the observer's clock, `left` counts messages.

    began_left  the messages that were left when the observer first saw the drain
    """

    began_s: float
    began_left: int
    now_s: float
    left: int

    @property
    def rest_s(self) -> float | None:
        """The time that the rest takes at the present rate; None if that is not known."""
        done = self.began_left - self.left
        passed_s = self.now_s - self.began_s
        if done > 0 and passed_s > 0:
            return self.left * passed_s / done
        return None


@dataclass(slots=True)
class Node:
    """One nsqd. Times are in s of a monotonic clock; `answered_s` is None before its first answer.

    reported      what nsqlookupds, or its own /info, report about it: the keys of `producers.producer`
    failure   why its last request failed; empty if it succeeded or is still under way
    """

    address: str
    reported: Statistics
    topics: dict[str, TopicPart] = field(default_factory=dict)
    totals: Totals = Totals()
    changed: int = 0  # the round in which one of its parts last changed
    latency: Latency = ()  # the highest of its topics
    is_moving: bool = False  # True if some of its parts may have rates other than QUIET
    start_time: int = 0
    version: str = ""
    health: str = ""
    disk_left_percent: int = 100  # of its disk, or of its limit; our nsqd reports it when it is less than 20
    role: Role = None
    store: Store | None = None  # the bucket that has its messages too
    project_version: str = ""  # of our nsqd; `version` is the release of NSQ
    drain: Drain | None = None
    certificate_ends_s: int = 0  # of its TLS listeners, since the epoch
    auth_failure: str = ""  # why its auth servers do not answer
    disk_slow_since_s: int = 0  # since the epoch; 0 while its disk is fast
    tcp_failure: str = ""  # why the observer cannot connect to the TCP port that it announces
    tcp_checked_s: float | None = None  # when it tried last; None before the first attempt
    tcp_start_time: int = 0  # of the nsqd that it tried
    failure: str = ""
    answered_s: float | None = None
    answers: int = 0
    is_whole: bool = False  # True if its parts are those of its last answer
    asked_s: float = 0.0
    took_s: float = 0.0
    slow_answers: int = 0  # the last ones without a break that took SLOW_ANSWER_S
    is_late: bool = False  # in the last round
    is_slow: bool = False  # late in two rounds, and not in time for some rounds since
    clock_ahead_s: int = 0  # of the clock of this process, by the Date of its answers; negative: behind
    is_listed: bool = True  # False if it answers, and no nsqlookupd lists it any more
    digest: tuple[int, int] = (0, 0)

    @property
    def depth(self) -> int:
        """All messages that wait there."""
        return self.totals.topics[0] + self.totals.channels[0]

    def age_s(self, now_s: float) -> float | None:
        """Return the time since its last answer."""
        if self.answered_s is None:
            return None
        return now_s - self.answered_s

    def adding_up(self) -> Iterator[None]:
        """Add up all topics, and the channel sums of each topic. Yield now and then."""
        totals = Totals()
        latency: Latency = ()
        all_topics = iter(self.topics.values())
        while topics := list(islice(all_topics, _TOPICS_AT_A_TIME)):
            totals = total([totals, *map(totals_of, topics)])
            latency = worst([latency, *(topic.latency for topic in topics)])
            yield
        self.totals = totals
        self.latency = latency


class Cluster:
    """All nodes, topics and channels. `tick` is the number of the round; a sum that changes is marked with it.

    failed_lookups   why nsqlookupds do not answer, or not as they should, by address
    lookups          how many nsqlookupds are asked
    unheard_lookups  how many of them have not answered since the start
    heard_lookups    those that have answered
    departed         nsqds that have ended cleanly, as nsqlookupds say, by HTTP address
    shared           addresses that several nsqds announce
    is_settled       True once the sums and rates are those of all nsqds: each needs two answers for a rate
    """

    def __init__(self) -> None:
        self.tick = 1
        self.nodes: dict[str, Node] = {}
        self.topics: dict[str, TopicRow] = {}
        self.failed_lookups: dict[str, str] = {}
        self.lookups = 0
        self.unheard_lookups = 0
        self.heard_lookups: tuple[str, ...] = ()
        self.departed: frozenset[str] = frozenset()
        self.shared: dict[str, SharedAddress] = {}
        self.is_settled = False
        self._began_s: float | None = None

    # ---- nodes

    def add_node(self, address: str, reported: Statistics) -> Node:
        """Add a node, or update what is `reported` about it."""
        node = self.nodes.get(address)
        if node is None:
            node = Node(address, reported)
            self.nodes[address] = node
        node.reported = reported
        return node

    def removing_node(self, address: str) -> Iterator[None]:
        """Remove a node. Yield whenever other greenlets may run; they must not change the cluster in the meantime."""
        return self._forgetting(self.nodes.pop(address))

    def unchanged(self, node: Node, now_s: float) -> None:
        """Note an answer that is equal to the one before."""
        self._calm(node)
        self._answered(node, now_s)

    def observing(self, node: Node, document: Any, now_s: float) -> Iterator[None]:
        """Process an answer of `/stats?format=json`. Yield whenever other greenlets may run. Raises BadStats.

        If the node is removed in the meantime, the caller must close the iterator.
        """
        names: set[str] = set()
        work = 0
        try:
            scale = self._scale(node, document, now_s)
            if not isinstance(document["topics"], list | None):
                raise TypeError("topics is no list")
            for row in document["topics"] or ():
                names.add(row["topic_name"])
                part = self._observe_counts(node, row["topic_name"], row, scale)
                channels = row["channels"] or ()
                for begin in range(0, len(channels), _ROWS_AT_A_TIME):
                    if work > _ROWS_AT_A_TIME:
                        yield
                        work = 0
                    some = channels[begin : begin + _ROWS_AT_A_TIME]
                    self._observe_channels(node, row["topic_name"], part, some, scale, now_s)
                    work += len(some)
                work += 1
                if len(channels) != len(part.channels):
                    seen = {channel["channel_name"] for channel in channels}
                    for number, gone in enumerate(part.channels.keys() - seen, start=1):
                        self._remove_channel(node, row["topic_name"], gone)
                        if number % _ROWS_AT_A_TIME == 0:
                            yield
                part.add_up()
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            node.digest = (0, 0)
            for part in node.topics.values():
                part.add_up()  # some of its channels have been read already
            raise BadStats(f"the answer is not that of an nsqd ({type(error).__name__}: {error})") from error
        if len(names) != len(node.topics):
            for name in node.topics.keys() - names:
                for _ in self._removing_topic(node, name):
                    yield
        node.start_time = number_in(document, "start_time")
        node.version = text_in(document, "version")
        node.health = text_in(document, "health")
        node.role = read_role(document)
        node.store = read_store(document)
        if "disk_left_percent" in document:
            node.disk_left_percent = number_in(document, "disk_left_percent")
        else:
            node.disk_left_percent = 100
        node.project_version = text_in(document, "project_version")
        node.certificate_ends_s = number_in(document, "tls_certificate_ends")
        node.auth_failure = text_in(document, "auth_failure")
        node.disk_slow_since_s = number_in(document, "disk_slow_since")
        node.drain = _drain(node.drain, document, now_s)
        self._answered(node, now_s)

    def _answered(self, node: Node, now_s: float) -> None:
        node.failure = ""
        node.answered_s = now_s
        node.is_whole = True
        node.answers += 1

    def fail(self, node: Node, reason: str) -> None:
        """Note that a request failed."""
        node.failure = reason
        node.digest = (0, 0)

    def ending_round(self, now_s: float, round_s: float) -> Iterator[None]:
        """Drop statistics that are too old, and add up what changed in this round.

        Yield whenever other greenlets may run; they must not change the cluster in the meantime.
        """
        for node in self.nodes.values():
            age_s = node.age_s(now_s)
            if age_s is None:
                continue
            if age_s > max(FORGET_AFTER_S, 2 * round_s) and node.topics:
                yield from self._forgetting(node)
            elif age_s > _QUIET_AFTER_ROUNDS * round_s:
                self._calm(node)
        self.is_settled = self.is_settled or self._has_settled(now_s)
        yield from self._adding_up()

    def _has_settled(self, now_s: float) -> bool:
        if self._began_s is None:
            self._began_s = now_s
        if now_s - self._began_s > _SETTLED_AFTER_S:
            return True
        is_listed = self.unheard_lookups <= len(self.failed_lookups)
        if not is_listed:
            return False
        return all(node.answers > 1 or node.failure for node in self.nodes.values())

    def _adding_up(self) -> Iterator[None]:
        """Add up what changed in this round."""
        for topic in self.topics.values():
            if topic.changed == self.tick:
                topic.add_up()
            for channel in topic.channels.values():
                if channel.changed == self.tick:
                    channel.add_up()
                yield
            yield
        for node in self.nodes.values():
            if node.changed == self.tick:
                yield from node.adding_up()

    # ---- rows

    @staticmethod
    def _scale(node: Node, document: Any, now_s: float) -> float:
        """Return the factor from a difference between two answers to a rate; 0 if they cannot be compared."""
        if node.answered_s is None or not node.is_whole or now_s <= node.answered_s:
            return 0.0
        if number_in(document, "start_time") != node.start_time:
            return 0.0
        return MILLI / (now_s - node.answered_s)

    def _observe_counts(self, node: Node, name: str, row: Mapping[str, Any], scale: float) -> TopicPart:
        part = node.topics.get(name) or self._add_topic(node, name)
        of_all = self.topics[name]
        counts = topic_metrics(row)
        if counts != part.counts:
            self._change(node, of_all, part, counts, topic_rates(counts, part.counts, scale))
        elif part.rates is not QUIET:
            self._rest(node, of_all, part, is_known=scale > 0)
        self._mark(node, of_all, part, row)
        if "log_bytes" in row:
            part.log_bytes = number_in(row, "log_bytes")
        else:
            part.log_bytes = NOT_REPORTED
        return part

    def _observe_channels(
        self,
        node: Node,
        topic: str,
        of_topic: TopicPart,
        rows: Sequence[Mapping[str, Any]],
        scale: float,
        now_s: float,
    ) -> None:
        known = of_topic.channels
        of_all = self.topics[topic].channels
        for row in rows:
            name: str = row["channel_name"]
            part = known.get(name) or self._add_channel(node, topic, of_topic, name, now_s)
            counts = channel_metrics(row)
            before = part.counts
            was_paused = part.is_paused
            if counts != before:
                finished = row.get("finish_count", NOT_REPORTED)
                rates = channel_rates(counts, part.counts, scale, _increase(part.finished, finished))
                self._change(node, of_all[name], part, counts, rates)
                part.finished = finished
            elif part.rates is not QUIET:
                self._rest(node, of_all[name], part, is_known=scale > 0)
            latency = row.get("e2e_processing_latency")
            if row.get("oldest_timestamp", 0) != part.oldest_ns:
                part.oldest_ns = read_time_ns(row, "oldest_timestamp")
                self._touch(node, of_all[name])
            had_marks = part.is_paused or part.latency or part.damage
            has_latency = latency and latency["percentiles"]
            has_damage = "lost_count" in row or "unreadable_count" in row or DROPPED in row
            if row["paused"] or had_marks or has_latency or has_damage:
                self._mark(node, of_all[name], part, row)
            was_held = part.attempts or part.stalled_ns or part.refused
            if was_held or not _HELD_KEYS.isdisjoint(row):
                self._mark_held(node, of_all[name], part, row)
            if counts != before or was_paused or part.is_paused:
                part.note_consumers(before, now_s)

    def _change(self, node: Node, row: Sum, part: Part, counts: Numbers, rates: Rates) -> None:
        """Set new statistics of a part, and mark the sums that include it."""
        if type(sum(counts)) is not int or max(counts) > MOST_COUNT or min(counts) < -MOST_COUNT:
            raise ValueError("a count is no whole number, or too large for one")
        part.counts = counts
        part.rates = rates
        if rates is not QUIET:
            node.is_moving = True
        self._touch(node, row)

    def _rest(self, node: Node, row: Sum, part: Part, *, is_known: bool) -> None:
        """Set the rates of a part whose counts did not change, if they are known now."""
        if part.rates is UNKNOWN:
            part.rates = QUIET if is_known else UNKNOWN  # the sums stay the same
        elif part.rates is not QUIET:
            part.rates = QUIET
            self._touch(node, row)

    def _touch(self, node: Node, row: Sum) -> None:
        """Mark the sums that include a part that changed: `_adding_up` recomputes them."""
        row.changed = node.changed = self.tick

    def _mark(self, node: Node, of_all: Sum, part: Part, row: Mapping[str, Any]) -> None:
        is_paused = bool(row["paused"])
        latency = read_latency(row)
        marks = is_paused, latency, read_time_ns(row, "oldest_timestamp"), read_damage(row)
        if marks != (part.is_paused, part.latency, part.oldest_ns, part.damage):
            part.is_paused, part.latency, part.oldest_ns, part.damage = marks
            self._touch(node, of_all)

    def _mark_held(self, node: Node, of_all: Sum, part: Part, row: Mapping[str, Any]) -> None:
        """Note what our nsqd says of messages that no consumer finishes."""
        ready = number_in(row, "ready_count") if "ready_count" in row else None
        attempts = number_in(row, "most_attempts")
        stalled_ns = read_time_ns(row, "stalled_timestamp")
        refused = text_in(row, "dead_letter_error")
        marks = attempts, stalled_ns, refused, ready
        if marks != (part.attempts, part.stalled_ns, part.refused, part.ready):
            part.attempts, part.stalled_ns, part.refused, part.ready = marks
            self._touch(node, of_all)

    def _calm(self, node: Node) -> None:
        """Set all rates of a node to 0."""
        if node.is_moving:
            for name in node.topics:
                self._calm_topic(node, name)
            node.is_moving = False

    def _calm_topic(self, node: Node, name: str) -> None:
        topic = node.topics[name]
        row = self.topics[name]
        if not topic.is_moving:
            return
        self._rest(node, row, topic, is_known=True)
        for channel, part in topic.channels.items():
            self._rest(node, row.channels[channel], part, is_known=True)
        topic.add_up()

    # ---- what comes and goes

    def _add_topic(self, node: Node, name: str) -> TopicPart:
        if not isinstance(name, str):
            raise ValueError("a topic's name is no text")
        name = intern(name)  # all nsqds share one string
        row = self.topics.get(name)
        if row is None:
            row = TopicRow(NO_TOPIC)
            self.topics[name] = row
        part = TopicPart(NO_TOPIC, UNKNOWN)
        row.parts[node.address] = part
        node.topics[name] = part
        node.is_moving = True
        self._touch(node, row)
        return part

    def _add_channel(self, node: Node, topic: str, of_topic: TopicPart, name: str, now_s: float) -> Part:
        if not isinstance(name, str) or not name:
            raise ValueError("a channel's name is no text")
        name = intern(name)
        channels = self.topics[topic].channels
        row = channels.get(name)
        if row is None:
            row = ChannelRow(NO_CHANNEL)
            channels[name] = row
        part = Part(NO_CHANNEL, UNKNOWN)
        row.parts[node.address] = part
        of_topic.channels[name] = part
        part.came_s = now_s if self.is_settled else 0.0
        node.is_moving = True
        self._touch(node, self.topics[topic])
        self._touch(node, row)
        return part

    def _remove_channel(self, node: Node, topic: str, name: str) -> None:
        of_topic = node.topics[topic]
        row = self.topics[topic]
        del of_topic.channels[name]
        self._touch(node, row.channels[name])
        self._touch(node, row)
        del row.channels[name].parts[node.address]
        if not row.channels[name].parts:
            del row.channels[name]

    def _removing_topic(self, node: Node, name: str) -> Iterator[None]:
        row = self.topics[name]
        for channel in list(node.topics[name].channels):
            self._remove_channel(node, name, channel)
            yield
        del node.topics[name]
        self._touch(node, row)
        del row.parts[node.address]
        if not row.parts:
            del self.topics[name]

    def _forgetting(self, node: Node) -> Iterator[None]:
        for name in list(node.topics):
            yield from self._removing_topic(node, name)
            yield
        node.digest = (0, 0)
        node.is_moving = False
        node.is_whole = False

    # ---- questions

    def parts_of(self, topic: str, channel: str = "") -> Iterator[tuple[Node, Part]]:
        """Yield each nsqd that has the topic or channel, and its part; none that has come since this cluster was made."""
        row = self.topics.get(topic)
        if not channel or row is None:
            found: TopicRow | ChannelRow | None = row
        else:
            found = row.channels.get(channel)
        if found is not None:
            for address, part in found.parts.items():
                node = self.nodes.get(address)
                if node is not None and topic in node.topics:
                    yield node, part

    @property
    def totals(self) -> Totals:
        """The sums over all nsqds."""
        return total(node.totals for node in self.nodes.values())

    def pairs(self) -> list[Pair]:
        """Return all primaries and their standbys."""
        nodes = [node for node in self.nodes.values() if node.role is not None or node.failure]
        return pairs(map(_in_group, nodes))


def _in_group(node: Node) -> NodeInGroup:
    tcp = ""
    if node.reported.get("tcp_port"):
        tcp = tcp_address(node.reported)
    is_answering = not node.failure and not node.is_late
    return NodeInGroup(node.address, tcp, node.role, is_answering)


def _drain(before: Drain | None, document: Any, now_s: float) -> Drain | None:
    """Return the drain that an answer of /stats reports; None if there is none."""
    if not flag_in(document, "draining"):
        return None
    left = number_in(document, "drain_messages_left")
    if before is None:
        return Drain(now_s, left, now_s, left)
    return Drain(before.began_s, max(before.began_left, left), now_s, left)


def _increase(before: int, now: Any) -> int | None:
    """Return the difference of a number that not all nsqds report; None if it cannot be compared."""
    if type(now) is not int or not NOT_REPORTED <= now <= MOST_COUNT:
        raise ValueError("a count is no whole number, or too large for one")
    if now < before or before == NOT_REPORTED:
        return None
    return now - before
