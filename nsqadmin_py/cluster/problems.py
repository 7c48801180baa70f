"""Finds what is wrong in the cluster now. Pure.

Each problem names its place, and says in one sentence what is wrong, with numbers. It is true of the last round; what
was wrong before is not listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nsqadmin_py.cluster.last_known import LastKnown, NodeMemory
from nsqadmin_py.cluster.metrics import FAILED, OK, SLOW, state_of
from nsqadmin_py.cluster.trends import Trend, Trends
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.producers import SharedAddress
from nsqd_py.cluster.roles import KnownStandby, troubles
from nsqd_py.cluster.statistics import ChannelCounts, ChannelRow, TopicRow
from nsqd_py.runtime.documents import TOO_MANY_NSQDS

ERROR, WARNING = "error", "warning"

# A rate of less is that of a single event within the last minute.
_LEAST_RATE = 0.01
_LEAST_TIMED_OUT_PART = 0.01
_LEAST_REQUEUED_PART = 0.2
DEAD = ".dead"
_DEPTH = ChannelCounts._fields.index("depth")
_CLIENTS = ChannelCounts._fields.index("clients")
_MOST_NAMED = 3
_CLOCK_DIFFERENCE_S = 30
# Kinds whose `node` is an nsqlookupd.
LOOKUP_KINDS = ("no_lookup", "lookup_failed")
# nsqadmin makes this channel in a dead-letter topic without one, to requeue from it.
CHANNEL_OF_DEAD_LETTERS = "nsqadmin"


class ProblemKind(NamedTuple):
    """A kind of problem: how bad it is, the words of its badge, and what to do about it."""

    severity: str
    word: str
    advice: str


# The order is that of the list, by harm: publishes are refused, clients are not served, messages are lost or in danger,
# messages wait, and what may become one of these.
KINDS = {
    "disk_full": ProblemKind(ERROR, "disk full", "Free space on its disk or raise its limit: it refuses publishes."),
    "unhealthy": ProblemKind(ERROR, "not healthy", "Publishes may be refused. See the log of this nsqd."),
    "standby_acks": ProblemKind(ERROR, "no standby", "Start its standby again: publishes are refused until it follows."),
    "lease_no_primary": ProblemKind(
        ERROR, "no primary", "Their processes live: bring back the store of the lease, or the nsqds that they wait for."
    ),
    "no_nsqd": ProblemKind(ERROR, "no nsqd", "Start an nsqd with --lookupd-tcp-address, or see the options of nsqadmin."),
    "node_failed": ProblemKind(ERROR, "failed", "Look at its process, and at the network between it and nsqadmin."),
    "node_gone": ProblemKind(
        ERROR,
        "gone",
        "If its process has ended, start it again with its data directory; dismiss it if it was taken away on purpose.",
    ),
    "lease_store": ProblemKind(
        ERROR, "lease", "Bring back etcd, or the network to it: an nsqd that cannot renew its lease ends serving."
    ),
    "no_lookup": ProblemKind(ERROR, "no nsqlookupd", "Start an nsqlookupd: until then, consumers that start find no nsqd."),
    "damage": ProblemKind(ERROR, "damage", "Its log says which messages; nsqd --check-data shows the state of its files."),
    "same_address": ProblemKind(
        ERROR,
        "same address",
        "Give each nsqd another --broadcast-address, or other ports. If it is one nsqd that has "
        "lost a connection, nsqlookupd soon forgets the old one.",
    ),
    "standby_alone": ProblemKind(
        ERROR, "alone", "Start its standby again, or another one: a machine that is lost now takes messages with it."
    ),
    "no_consumer": ProblemKind(
        ERROR, "no consumer", "Start its consumers; delete the channel if its messages are not needed any more."
    ),
    "timing_out": ProblemKind(
        ERROR, "timing out", "Find the consumer that holds messages for too long, or raise its message timeout."
    ),
    "disk": ProblemKind(WARNING, "disk", "Free space on its disk or raise its limit: at the limit it refuses publishes."),
    "lookup_failed": ProblemKind(
        WARNING, "nsqlookupd", "Consumers that ask only this nsqlookupd find no nsqd, or not all. Look at its process and log."
    ),
    "node_unlisted": ProblemKind(WARNING, "not listed", "Consumers do not find it. Check its connection to nsqlookupd."),
    "standby_damaged": ProblemKind(
        WARNING,
        "damaged copy",
        "Look at its log and its disk. If its primary is damaged in the same place, the messages are lost.",
    ),
    "standby_incomplete": ProblemKind(WARNING, "incomplete", "Wait until it has copied everything, or see its log."),
    "standby_away": ProblemKind(
        WARNING, "disconnected", "If its primary is lost, promote it; else look at the network between them."
    ),
    "lease_standby_away": ProblemKind(
        WARNING, "disconnected", "Look at its primary, and at the network between them. The lease decides about its promotion."
    ),
    "standby_lags": ProblemKind(WARNING, "lags", "Look at the load of its machine and its disk, and at the network."),
    "standby_missing": ProblemKind(
        WARNING, "no standby", "Start its standby. An nsqd that needs none has neither --accept-standbys nor --lease."
    ),
    "growing": ProblemKind(WARNING, "growing", "Add consumers, raise their max-in-flight, or find out why they are slow."),
    "no_channel": ProblemKind(WARNING, "no channel", "Subscribe a consumer. The first channel gets all that waits."),
    "requeueing": ProblemKind(WARNING, "requeued", "Look at the errors of its consumers, and at its messages."),
    "dead_letters": ProblemKind(WARNING, "dead letters", "See why they failed, repair the consumer, then requeue them."),
    "node_slow": ProblemKind(WARNING, "slow", "Its metrics are old. Look at the load of its machine and its disk."),
    "clock": ProblemKind(WARNING, "clock", "Synchronize both clocks (NTP): ages, retention and deferred messages need them."),
    "paused": ProblemKind(WARNING, "paused", "Resume it once the reason for the pause is over."),
}


class Problem(NamedTuple):
    """A problem and its place; names that do not apply are empty.

    text     what is wrong
    weight   problems of one kind are listed by it, highest first
    since_s  since when, in s since the epoch; 0: since it was found
    cause    problems of one kind with the same cause are one row of the list; most kinds have only one
    """

    kind: str
    text: str
    topic: str = ""
    channel: str = ""
    node: str = ""
    weight: float = 0.0
    since_s: float = 0.0
    cause: str = ""

    @property
    def key(self) -> str:
        return "|".join((self.kind, self.topic, self.channel, self.node))


def problems(cluster: Cluster, memory: NodeMemory, trends: Trends, now_s: float) -> Iterator[Problem]:
    """Yield all problems, those of nsqds first."""
    yield from _of_nodes(cluster, memory, now_s)
    for trouble in troubles(cluster.pairs()):
        yield Problem(trouble.kind, trouble.text, node=trouble.node)
    yield from _of_lookups(cluster)
    for name, topic in cluster.topics.items():
        yield from _of_topic(name, topic)
        for channel_name, channel in topic.channels.items():
            yield from _of_channel(name, channel_name, channel, trends)


# ---- nsqlookupds


def _of_lookups(cluster: Cluster) -> Iterator[Problem]:
    failed = cluster.failed_lookups.copy()  # it may change while other greenlets run
    silent = sum(reason != TOO_MANY_NSQDS for reason in failed.values())
    kind = "no_lookup" if silent >= cluster.lookups else "lookup_failed"
    for address, reason in failed.items():
        verb = "" if reason == TOO_MANY_NSQDS else "does not answer: "
        yield Problem(kind, f"{verb}{reason}", node=address)
    for address, shared in cluster.shared.items():
        yield Problem("same_address", _shared_text(cluster, address, shared), node=shared.node)


def _shared_text(cluster: Cluster, address: str, shared: SharedAddress) -> str:
    text = f"{shared.nsqds} nsqds announce the address {address}, at which only one can be reached"
    unseen = [topic for topic in shared.topics if topic not in cluster.topics]
    named = ", ".join(unseen[:_MOST_NAMED]) + (" and others" if len(unseen) > _MOST_NAMED else "")
    return f"{text}; topics that only the others have: {named}" if unseen else text


# ---- nsqds


def _of_nodes(cluster: Cluster, memory: NodeMemory, now_s: float) -> Iterator[Problem]:
    if cluster.is_settled and not cluster.nodes:
        yield Problem("no_nsqd", "nsqadmin knows no nsqd")
    for known in memory.gone():
        text = f"does not answer, and no nsqlookupd lists it{_held(known)}"
        if known.primary:
            text = f"does not answer, and its primary {known.primary} has no connection to it"
        yield Problem("node_gone", text, node=known.address, weight=known.depth, since_s=known.seen_s)
    for address, node in cluster.nodes.items():
        seen = memory.nodes.get(address)
        state, depth = state_of(node, now_s), seen.depth if seen is not None else 0
        since_s = seen.seen_s if seen is not None else 0.0
        if state == FAILED:
            reason = f" ({node.failure})" if node.failure else ""
            held = _held(seen) if seen is not None else "; it has not answered since nsqadmin started"
            text = f"does not answer{reason}{held}"
            yield Problem("node_failed", text, "", "", address, depth, since_s, cause=node.failure)
        elif state == SLOW:
            yield Problem("node_slow", f"answers late{_held(seen)}", "", "", address, depth, since_s)
        if state == OK:
            yield from _of_health(address, node)
        if state == OK and abs(node.clock_ahead_s) >= _CLOCK_DIFFERENCE_S:
            way = "ahead of" if node.clock_ahead_s > 0 else "behind"
            text = f"has a clock that is {span(abs(node.clock_ahead_s))} {way} that of nsqadmin"
            yield Problem("clock", text, node=address, weight=abs(node.clock_ahead_s))
        if state == OK and not node.is_listed and not isinstance(node.role, KnownStandby):
            yield Problem("node_unlisted", "answers, but no nsqlookupd lists it", node=address)


def _of_health(address: str, node: Node) -> Iterator[Problem]:
    """Yield one problem for a disk that is full, also where it makes the nsqd refuse publishes."""
    left, is_healthy = node.disk_left_percent, node.health in ("", "OK")
    texts = [] if is_healthy else [f"reports: {node.health}"]
    if left < 100:
        texts.append(f"has {left} % left of its disk, or of the limit that it has been given")
    if texts:
        kind = "disk_full" if left <= 0 else "disk" if is_healthy else "unhealthy"
        yield Problem(kind, "; it ".join(texts), node=address, weight=-left)


def _held(known: LastKnown | None) -> str:
    if known is None or not known.metrics:
        return ""
    return f"; {counted(known.depth, 'message')} waited there when it was last seen"


# ---- topics


def _of_topic(name: str, topic: TopicRow) -> Iterator[Problem]:
    own = topic.statistics
    if topic.paused_parts:
        yield Problem("paused", f"The topic is paused{_where(topic)}; {_waiting(own.depth)} in it", name)
    if topic.damaged_parts:
        yield from _damage(topic, name)
    if own.depth and not topic.channels and not name.endswith(DEAD):
        yield Problem("no_channel", f"{_waiting(own.depth)}, and the topic has no channel", name, weight=own.depth)
    if name.endswith(DEAD):
        depth = waiting_dead_letters(topic)
        if depth:
            text = f"{counted(depth, 'dead letter')} of {name.removesuffix(DEAD)} {_verb(depth)}"
            yield Problem("dead_letters", text, name, weight=depth)


def waiting_dead_letters(topic: TopicRow | None) -> int:
    """Return the messages that wait in a dead-letter topic: a message in several channels counts once."""
    if topic is None:
        return 0
    return topic.counts[0] + max((channel.counts[_DEPTH] for channel in topic.channels.values()), default=0)


_DAMAGE_TEXTS = {
    "damaged_bytes": "{} bytes of its log cannot be read",
    "missing_count": "{} messages were in no file at its start",
    "removed_files": "{} files of its log were removed or cut while it used them",
    "lost_count": "{} messages were lost, since they are damaged or missing",
    "unreadable_count": "{} messages cannot be read at present",
}


def _damage(row: TopicRow | ChannelRow, topic: str, channel: str = "") -> Iterator[Problem]:
    """Yield the damage of a topic or channel on each nsqd."""
    for address, part in row.parts.items():
        if part.damage:
            found = [_DAMAGE_TEXTS[key].format(f"{number:,}") for key, number in part.damage]
            yield Problem("damage", f"On {address}: {'; '.join(found)}", topic, channel, address, cause=address)


def _where(row: TopicRow | ChannelRow) -> str:
    return "" if row.paused_parts == len(row.parts) else f" on {row.paused_parts} of {counted(len(row.parts), 'nsqd')}"


# ---- channels


def _of_channel(topic: str, name: str, channel: ChannelRow, trends: Trends) -> Iterator[Problem]:
    counts, trend = channel.statistics, trends.of(topic, name)
    if channel.damaged_parts:
        yield from _damage(channel, topic, name)
    if channel.paused_parts:
        text = f"The channel is paused{_where(channel)}; {_waiting(counts.depth)}"
        yield Problem("paused", text, topic, name, weight=counts.depth)
    elif counts.depth and not _is_own(topic, name):
        yield from _unconsumed(topic, name, channel, counts, trend)
    if trend is None or _is_own(topic, name):
        return
    if counts.clients and not channel.paused_parts and trend.is_growing:
        yield Problem("growing", _growing_text(trend), topic, name, weight=trend.growth)
    if trend.timed_out > _LEAST_RATE and trend.timed_out_part > _LEAST_TIMED_OUT_PART:
        text = f"{rate(trend.timed_out)} time out: {percent(trend.timed_out_part)} of all deliveries"
        yield Problem("timing_out", text, topic, name, weight=trend.timed_out)
    if trend.requeued > _LEAST_RATE and trend.requeued_part > _LEAST_REQUEUED_PART:
        text = f"{rate(trend.requeued)} are requeued: {percent(trend.requeued_part)} of all deliveries"
        yield Problem("requeueing", text, topic, name, weight=trend.requeued)


def _is_own(topic: str, channel: str) -> bool:
    """True for nsqadmin's own channel. No one consumes it; the dead letters in it are a problem of the topic."""
    return channel == CHANNEL_OF_DEAD_LETTERS and topic.endswith(DEAD)


def _unconsumed(topic: str, name: str, channel: ChannelRow, counts: ChannelCounts, trend: Trend | None) -> Iterator[Problem]:
    if not counts.clients:
        more = f"; {rate(trend.came)} more come" if trend is not None and trend.came > _LEAST_RATE else ""
        text = f"{_waiting(counts.depth)}, and no consumer is connected{more}"
        yield Problem("no_consumer", text, topic, name, weight=counts.depth)
        return
    if channel.unconsumed_parts:
        alone = {
            address: part.counts[_DEPTH]
            for address, part in channel.parts.items()
            if part.counts[_DEPTH] and not part.counts[_CLIENTS]
        }
        named = ", ".join(sorted(alone)[:_MOST_NAMED]) + (" and others" if len(alone) > _MOST_NAMED else "")
        depth = sum(alone.values())
        text = f"{_waiting(depth)} on {named}, to which none of its consumers is connected"
        yield Problem("no_consumer", text, topic, name, weight=depth, cause=named)


def _growing_text(trend: Trend) -> str:
    work = f"; its consumers need {span(trend.work_s)} for what waits now" if trend.work_s is not None else ""
    flow = f"{rate(trend.came)} come, {rate(trend.finished)} are finished"
    return f"{_waiting(trend.depth)}, and {rate(trend.growth)} are added ({flow}){work}"


# ---- words


def counted(number: int, noun: str) -> str:
    """Return "1 message" or "12,345 messages"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _waiting(depth: int) -> str:
    return f"{counted(depth, 'message')} {_verb(depth)}"


def _verb(number: int) -> str:
    return "waits" if number == 1 else "wait"


def rate(per_s: float) -> str:
    """Return "12,345/s", "12.3/s" or "0.12/s"."""
    return f"{per_s:,.0f}/s" if per_s >= 100 else f"{per_s:.3g}/s"


def percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.01 else f"{100 * part:.1g} %"


_UNITS: tuple[tuple[float, str], ...] = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def span(seconds: float) -> str:
    """Return "2 h 5 min": the two largest units of a time span."""
    parts: list[str] = []
    rest = max(1, round(seconds))
    for unit_s, name in _UNITS:
        number, rest = divmod(rest, int(unit_s))
        if number or parts:
            parts.append(f"{number} {name}" if number else "")
    return " ".join(part for part in parts[:2] if part)
