"""The problems of topics and channels. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nsqd_py.cluster.counts import ChannelCounts
from nsqd_py.cluster.problems.kinds import Problem
from nsqd_py.cluster.problems.limits import (
    CONSUMERS_FIND_NSQD_S,
    CONSUMERS_RETURN_S,
    MANY_ATTEMPTS,
    STUCK_AFTER_S,
    Limits,
)
from nsqd_py.cluster.problems.trends import Trend
from nsqd_py.cluster.problems.words import counted, named, percent, rate, span, verb, waiting
from nsqd_py.cluster.statistics import ChannelRow, Part, TopicRow

# A rate of less is that of a single event within the last minute.
_LEAST_RATE = 0.01
_LEAST_TIMED_OUT_PART = 0.01
_LEAST_REQUEUED_PART = 0.2
DEAD = ".dead"
# nsqadmin makes this channel in a dead-letter topic without one, to requeue from it.
CHANNEL_OF_DEAD_LETTERS = "nsqadmin"
_DEPTH, _IN_FLIGHT, _CLIENTS = (
    ChannelCounts._fields.index(name) for name in ("depth", "in_flight", "clients")
)

_DAMAGE_TEXTS = {
    "damaged_bytes": "{} bytes of its log cannot be read",
    "missing_count": "{} messages were in no file at its start",
    "removed_files": "{} files of its log were removed or cut while it used them",
    "lost_count": "{} messages were lost, since they are damaged or missing",
    "unreadable_count": "{} messages cannot be read at present",
}

# ---- topics


def of_topic(name: str, topic: TopicRow) -> Iterator[Problem]:
    own = topic.statistics
    if topic.paused_parts:
        yield Problem("paused", f"The topic is paused{_where(topic)}; {waiting(own.depth)} in it", name)
    if topic.damaged_parts:
        yield from _damage(topic, name)
    if own.depth and not topic.channels and not name.endswith(DEAD):
        yield Problem(
            "no_channel", f"{waiting(own.depth)}, and the topic has no channel", name, weight=own.depth
        )
    if name.endswith(DEAD):
        depth = waiting_dead_letters(topic)
        if depth:
            text = f"{counted(depth, 'dead letter')} of {name.removesuffix(DEAD)} {verb(depth)}"
            yield Problem("dead_letters", text, name, weight=depth)


def waiting_dead_letters(topic: TopicRow | None) -> int:
    """Return the messages that wait in a dead-letter topic: a message in several channels counts once."""
    if topic is None:
        return 0
    deepest = max((channel.counts[_DEPTH] for channel in topic.channels.values()), default=0)
    return topic.counts[0] + deepest


def _damage(row: TopicRow | ChannelRow, topic: str, channel: str = "") -> Iterator[Problem]:
    """Yield the damage of a topic or channel on each nsqd."""
    for address, part in row.parts.items():
        if part.damage:
            found = [_DAMAGE_TEXTS[key].format(f"{number:,}") for key, number in part.damage]
            yield Problem(
                "damage", f"On {address}: {'; '.join(found)}", topic, channel, address, cause=address
            )


def _where(row: TopicRow | ChannelRow) -> str:
    if row.paused_parts == len(row.parts):
        return ""
    return f" on {row.paused_parts} of {counted(len(row.parts), 'nsqd')}"


# ---- channels


def of_channel(
    topic: str,
    name: str,
    channel: ChannelRow,
    trend: Trend | None,
    limits: Limits,
    now_s: float,
    time_s: float,
) -> Iterator[Problem]:
    """`trend` is None if nothing waits, or if only one round was seen."""
    counts = channel.statistics
    if channel.damaged_parts:
        yield from _damage(channel, topic, name)
    if channel.tried_parts:
        yield from _much_tried(topic, name, channel)
    if channel.paused_parts:
        text = f"The channel is paused{_where(channel)}; {waiting(counts.depth)}"
        yield Problem("paused", text, topic, name, weight=counts.depth)
    elif counts.depth and not _is_own(topic, name):
        yield from _unconsumed(topic, name, channel, counts, trend, now_s)
    if _is_own(topic, name):
        return
    stuck = _stuck(topic, name, channel, trend, now_s, time_s) if counts.depth and counts.clients else None
    if stuck is not None:
        yield stuck
    elif counts.clients and not channel.paused_parts and not topic.endswith(DEAD):
        yield from _old(topic, name, channel, counts, limits, time_s)
    if trend is None:
        return
    if counts.clients and not channel.paused_parts and stuck is None and trend.is_growing:
        yield Problem(
            "growing", _growing_text(trend, trend.grows_on(channel)), topic, name, weight=trend.growth
        )
    if trend.is_timing_out and trend.timed_out > _LEAST_RATE and trend.timed_out_part > _LEAST_TIMED_OUT_PART:
        text = f"{rate(trend.timed_out)} time out: {percent(trend.timed_out_part)} of all deliveries"
        yield Problem("timing_out", text, topic, name, weight=trend.timed_out)
    if trend.requeued > _LEAST_RATE and trend.requeued_part > _LEAST_REQUEUED_PART:
        text = f"{rate(trend.requeued)} are requeued: {percent(trend.requeued_part)} of all deliveries"
        yield Problem("requeueing", text, topic, name, weight=trend.requeued)


def _is_own(topic: str, channel: str) -> bool:
    """True for nsqadmin's own channel. No one consumes it; the dead letters in it are a problem of the topic."""
    return channel == CHANNEL_OF_DEAD_LETTERS and topic.endswith(DEAD)


def _much_tried(topic: str, name: str, channel: ChannelRow) -> Iterator[Problem]:
    most = max(part.attempts for part in channel.parts.values())
    if most >= MANY_ATTEMPTS:
        retrying = [address for address, part in channel.parts.items() if part.attempts >= MANY_ATTEMPTS]
        nodes = named(retrying)
        text = f"A message on {nodes} was delivered {counted(most, 'time')}, and is not finished"
        yield Problem("many_attempts", text, topic, name, weight=most)


def _unconsumed(
    topic: str, name: str, channel: ChannelRow, counts: ChannelCounts, trend: Trend | None, now_s: float
) -> Iterator[Problem]:
    """Yield nothing while consumers may only restart, or have not found an nsqd yet that has come back."""
    if not counts.clients:
        left_s = max(part.left_s for part in channel.parts.values())
        if left_s and now_s - left_s < CONSUMERS_RETURN_S:
            return
        more = f"; {rate(trend.came)} more come" if trend is not None and trend.came > _LEAST_RATE else ""
        text = f"{waiting(counts.depth)}, and no consumer is connected{more}"
        yield Problem("no_consumer", text, topic, name, weight=counts.depth)
        return
    if channel.unconsumed_parts:
        alone = {
            address: part.counts[_DEPTH]
            for address, part in channel.parts.items()
            if part.counts[_DEPTH] and not part.counts[_CLIENTS] and _is_long_alone(part, now_s)
        }
        if alone:
            depth = sum(alone.values())
            nodes = named(list(alone))
            text = f"{waiting(depth)} on {nodes}, to which none of its consumers is connected"
            yield Problem("no_consumer", text, topic, name, weight=depth, cause=nodes)


def _is_long_alone(part: Part, now_s: float) -> bool:
    since_s = max(part.left_s, part.came_s)
    return not since_s or now_s - since_s >= CONSUMERS_FIND_NSQD_S


def _growing_text(trend: Trend, nodes: list[str]) -> str:
    """`nodes` are the nsqds on which the backlog grows, if they are known."""
    where = f" on {named(nodes)}" if nodes else ""
    work = f"; its consumers need {span(trend.work_s)} for what waits now" if trend.work_s is not None else ""
    flow = f"{rate(trend.came)} come, {rate(trend.finished)} are finished"
    return f"{waiting(trend.depth)}, and {rate(trend.growth)} are added{where} ({flow}){work}"


# ---- messages that wait for long


def _old(
    topic: str, name: str, channel: ChannelRow, counts: ChannelCounts, limits: Limits, time_s: float
) -> Iterator[Problem]:
    limit_s = limits.max_age_s(topic)
    age_s = time_s - channel.oldest_ns / 1e9
    if counts.depth and channel.oldest_ns and limit_s and age_s > limit_s:
        text = f"{waiting(counts.depth)}, the oldest for {span(age_s)}; the limit is {span(limit_s)}"
        yield Problem("old", text, topic, name, weight=age_s)


def stuck_s(part: Part, now_s: float, time_s: float) -> float:
    """Return for how long nothing was finished although messages wait and consumers are connected; 0: something was.

    The observer knows it from its own rounds, our nsqd also from before. `time_s` is since the epoch.
    """
    if part.is_paused or not part.counts[_DEPTH] or not part.counts[_CLIENTS]:
        return 0.0
    seen_s = now_s - part.still_s if part.still_s else 0.0
    reported_s = time_s - part.stalled_ns / 1e9 if part.stalled_ns else 0.0
    return max(seen_s, reported_s)


def _stuck(
    topic: str, name: str, channel: ChannelRow, trend: Trend | None, now_s: float, time_s: float
) -> Problem | None:
    times_s = {address: stuck_s(part, now_s, time_s) for address, part in channel.parts.items()}
    stuck = {address: part for address, part in channel.parts.items() if times_s[address] >= STUCK_AFTER_S}
    if not stuck:
        return None
    depth = sum(part.counts[_DEPTH] for part in stuck.values())
    longest_s = max(times_s[address] for address in stuck)
    where = "" if len(stuck) == len(channel.parts) else f" on {named(list(stuck))}"
    text = f"{waiting(depth)}{where}, and nothing was finished for {span(longest_s)}: {_hold(list(stuck.values()), trend)}"
    return Problem("stuck", text, topic, name, weight=depth, cause=where)


def _hold(parts: list[Part], trend: Trend | None) -> str:
    """Say what holds the messages of parts in which nothing is finished."""
    in_flight = sum(part.counts[_IN_FLIGHT] for part in parts)
    clients = counted(sum(part.counts[_CLIENTS] for part in parts), "consumer")
    if trend is not None and trend.timed_out > max(trend.requeued, _LEAST_RATE):
        return f"deliveries time out ({rate(trend.timed_out)})"
    if trend is not None and trend.requeued > _LEAST_RATE:
        return f"{clients} {_has(clients)} requeued all deliveries ({rate(trend.requeued)})"
    ready = [part.ready for part in parts]
    asked = sum(filter(None, ready))
    if not in_flight and asked:
        return f"nothing is sent although RDY is {asked:,}: {clients} {_take(clients)} no data from the connection"
    if not in_flight:
        return f"RDY is 0: {clients} {_ask(clients)} for no messages, perhaps in back-off after errors"
    held = f"{counted(in_flight, 'message')} in flight to {clients}"
    if any(count is None for count in ready):
        return f"{held}, and none of them is answered"
    return f"{held} with RDY {asked:,}, and none of them is answered"


def _has(clients: str) -> str:
    return "has" if clients.startswith("1 ") else "have"


def _take(clients: str) -> str:
    return "takes" if clients.startswith("1 ") else "take"


def _ask(clients: str) -> str:
    return "asks" if clients.startswith("1 ") else "ask"
