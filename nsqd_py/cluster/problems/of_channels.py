"""The problems of topics and channels. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
from nsqd_py.cluster.statistics import DROPPED, ChannelRow, Part, TopicRow

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
    """Yield problems without the name of the topic, which the caller adds."""
    depth = topic.statistics.depth
    if topic.paused_parts:
        yield Problem("paused", f"The topic is paused{_where(topic)}; {waiting(depth)} in it")
    yield from _damage(topic)
    if not name.endswith(DEAD):
        if depth and not topic.channels:
            yield Problem("no_channel", f"{waiting(depth)}, and the topic has no channel", weight=depth)
        return
    letters = waiting_dead_letters(topic)
    if letters:
        text = f"{counted(letters, 'dead letter')} of {name.removesuffix(DEAD)} {verb(letters)}"
        yield Problem("dead_letters", text, weight=letters)


def waiting_dead_letters(topic: TopicRow | None) -> int:
    """Return the messages that wait in a dead-letter topic: a message in several channels counts once."""
    if topic is None:
        return 0
    deepest = max((channel.counts[_DEPTH] for channel in topic.channels.values()), default=0)
    return topic.counts[0] + deepest


def _damage(row: TopicRow | ChannelRow) -> Iterator[Problem]:
    """Yield the damage of a topic or channel on each nsqd, and what it dropped because it is ephemeral."""
    if not row.damaged_parts:
        return
    for address, part in row.parts.items():
        found = dict(part.damage)
        dropped = found.pop(DROPPED, 0)
        if found:
            texts = [_DAMAGE_TEXTS[key].format(f"{number:,}") for key, number in found.items()]
            yield Problem("damage", f"On {address}: {'; '.join(texts)}", node=address, cause=address)
        if dropped:
            text = f"On {address}: {counted(dropped, 'message')} dropped, since there was no room in memory"
            yield Problem("dropped", text, node=address, weight=dropped)


def _where(row: TopicRow | ChannelRow) -> str:
    if row.paused_parts == len(row.parts):
        return ""
    return f" on {row.paused_parts} of {counted(len(row.parts), 'nsqd')}"


# ---- channels


@dataclass(slots=True)
class OfChannel:
    """Finds the problems of a channel; they have no names, which the caller adds.

    trend  None if nothing waits, or if only one round was seen
    """

    topic: str
    name: str
    channel: ChannelRow
    trend: Trend | None
    limits: Limits
    now_s: float
    time_s: float

    def problems(self) -> Iterator[Problem]:
        channel = self.channel
        counts = channel.statistics
        # No one consumes nsqadmin's own channel; the dead letters in it are a problem of the topic.
        is_dead = self.topic.endswith(DEAD)
        is_own = is_dead and self.name == CHANNEL_OF_DEAD_LETTERS
        yield from _damage(channel)
        if channel.tried_parts:
            yield from self._unmoved()
            yield from self._much_tried()
        if channel.paused_parts:
            text = f"The channel is paused{_where(channel)}; {waiting(counts.depth)}"
            yield Problem("paused", text, weight=counts.depth)
        elif counts.depth and not is_own:
            yield from self._unconsumed(counts)
        if is_own:
            return
        stuck = None
        if counts.depth and counts.clients:
            stuck = self._stuck()
        is_served = counts.clients > 0 and not channel.paused_parts and stuck is None
        if stuck is not None:
            yield stuck
        elif is_served and not is_dead:
            yield from self._old(counts.depth)
        if self.trend is not None:
            yield from self._moving(self.trend, is_served=is_served)

    def _unmoved(self) -> Iterator[Problem]:
        """Yield each nsqd on which the dead-letter topic refuses messages."""
        for address, part in self.channel.parts.items():
            if part.refused:
                text = (
                    f"On {address}: messages with too many attempts are delivered again, since {part.refused}"
                )
                yield Problem("dead_letters_refused", text, node=address, cause=address)

    def _much_tried(self) -> Iterator[Problem]:
        parts = self.channel.parts
        most = max(part.attempts for part in parts.values())
        if most >= MANY_ATTEMPTS:
            nodes = named([address for address, part in parts.items() if part.attempts >= MANY_ATTEMPTS])
            text = f"A message on {nodes} was delivered {counted(most, 'time')}, and is not finished"
            yield Problem("many_attempts", text, weight=most)

    def _unconsumed(self, counts: ChannelCounts) -> Iterator[Problem]:
        """Yield nothing while consumers may only restart, or have not found an nsqd yet that has come back."""
        channel = self.channel
        if not counts.clients:
            left_s = max(part.left_s for part in channel.parts.values())
            if left_s and self.now_s - left_s < CONSUMERS_RETURN_S:
                return
            trend = self.trend
            more = ""
            if trend is not None and trend.came > _LEAST_RATE:
                more = f"; {rate(trend.came)} more come"
            text = f"{waiting(counts.depth)}, and no consumer is connected{more}"
            yield Problem("no_consumer", text, weight=counts.depth)
        elif channel.unconsumed_parts:
            parts = channel.parts.items()
            alone = {address: part.counts[_DEPTH] for address, part in parts if self._is_long_alone(part)}
            if alone:
                depth = sum(alone.values())
                nodes = named(list(alone))
                text = f"{waiting(depth)} on {nodes}, to which none of its consumers is connected"
                yield Problem("no_consumer", text, weight=depth, cause=nodes)

    def _is_long_alone(self, part: Part) -> bool:
        if not part.counts[_DEPTH] or part.counts[_CLIENTS]:
            return False
        since_s = max(part.left_s, part.came_s)
        return not since_s or self.now_s - since_s >= CONSUMERS_FIND_NSQD_S

    def _moving(self, trend: Trend, *, is_served: bool) -> Iterator[Problem]:
        if is_served and trend.is_growing:
            yield Problem("growing", self._growing_text(trend), weight=trend.growth)
        timed_out = trend.timed_out
        if trend.is_timing_out and timed_out > _LEAST_RATE and trend.timed_out_part > _LEAST_TIMED_OUT_PART:
            text = f"{rate(timed_out)} time out: {percent(trend.timed_out_part)} of all deliveries"
            yield Problem("timing_out", text, weight=timed_out)
        requeued = trend.requeued
        if requeued > _LEAST_RATE and trend.requeued_part > _LEAST_REQUEUED_PART:
            text = f"{rate(requeued)} are requeued: {percent(trend.requeued_part)} of all deliveries"
            yield Problem("requeueing", text, weight=requeued)

    def _growing_text(self, trend: Trend) -> str:
        nodes = trend.grows_on(self.channel)
        where = f" on {named(nodes)}" if nodes else ""
        work_s = trend.work_s
        work = ""
        if work_s is not None:
            work = f"; its consumers need {span(work_s)} for what waits now"
        flow = f"{rate(trend.came)} come, {rate(trend.finished)} are finished"
        return f"{waiting(trend.depth)}, and {rate(trend.growth)} are added{where} ({flow}){work}"

    # ---- messages that wait for long

    def _old(self, depth: int) -> Iterator[Problem]:
        limit_s = self.limits.max_age_s(self.topic)
        age_s = self.time_s - self.channel.oldest_ns / 1e9
        if depth and self.channel.oldest_ns and limit_s and age_s > limit_s:
            text = f"{waiting(depth)}, the oldest for {span(age_s)}; the limit is {span(limit_s)}"
            yield Problem("old", text, weight=age_s)

    def _stuck(self) -> Problem | None:
        parts = self.channel.parts
        longest_s = 0.0
        stuck = {}
        for address, part in parts.items():
            stuck_s = self._stuck_s(part)
            longest_s = max(longest_s, stuck_s)
            if stuck_s >= STUCK_AFTER_S:
                stuck[address] = part
        if not stuck:
            return None
        depth = sum(part.counts[_DEPTH] for part in stuck.values())
        where = "" if len(stuck) == len(parts) else f" on {named(list(stuck))}"
        time = span(longest_s)
        hold = _hold(list(stuck.values()), self.trend)
        text = f"{waiting(depth)}{where}, and nothing was finished for {time}: {hold}"
        return Problem("stuck", text, weight=depth, cause=where)

    def _stuck_s(self, part: Part) -> float:
        """Return for how long nothing was finished although messages wait and consumers are connected; 0: something was.

        The observer knows it from its own rounds, our nsqd also from before.
        """
        if part.is_paused or not part.counts[_DEPTH] or not part.counts[_CLIENTS]:
            return 0.0
        seen_s = 0.0
        if part.still_s:
            seen_s = self.now_s - part.still_s
        reported_s = 0.0
        if part.stalled_ns:
            reported_s = self.time_s - part.stalled_ns / 1e9
        return max(seen_s, reported_s)


def _hold(parts: list[Part], trend: Trend | None) -> str:
    """Say what holds the messages of parts in which nothing is finished."""
    in_flight = sum(part.counts[_IN_FLIGHT] for part in parts)
    number = sum(part.counts[_CLIENTS] for part in parts)
    clients = counted(number, "consumer")
    is_one = number == 1
    if trend is not None and trend.timed_out > max(trend.requeued, _LEAST_RATE):
        return f"deliveries time out ({rate(trend.timed_out)})"
    if trend is not None and trend.requeued > _LEAST_RATE:
        return f"{clients} {'has' if is_one else 'have'} requeued all deliveries ({rate(trend.requeued)})"
    ready = [part.ready for part in parts]
    asked = sum(filter(None, ready))
    if not in_flight and asked:
        takes = f"{clients} {'takes' if is_one else 'take'} no data from the connection"
        return f"nothing is sent although RDY is {asked:,}: {takes}"
    if not in_flight:
        asks = f"{clients} {'asks' if is_one else 'ask'} for no messages"
        return f"RDY is 0: {asks}, perhaps in back-off after errors"
    held = f"{counted(in_flight, 'message')} in flight to {clients}"
    if None not in ready:
        held = f"{held} with RDY {asked:,}"
    return f"{held}, and none of them is answered"
