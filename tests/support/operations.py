"""What somebody does to topics and channels while a mixed load runs: it is noted as a cut, or as a pause."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.support.ledger import FOREVER_NS, MILLISECOND_NS, Cut, Lives, TopicLedger
from tests.support.nsqd_process import NsqdProcess

CHANNELS = ("left", "right")


@dataclass
class PlannedTopic:
    """A topic of the load: how often it is published to, and by its ledger what somebody does to it."""

    ledger: TopicLedger
    operations: tuple[str, ...]
    share: int
    # By channel, "" for the topic: the states of pause that are possible, as far as the answers tell.
    paused: dict[str, set[bool]] = field(default_factory=dict)
    # When its pause was asked for and answered. Where several may have begun it, the first and the last of these times.
    paused_since_ns: tuple[int, int] | None = None


def plan(lives: Lives, operations: tuple[tuple[str, int, tuple[str, ...]], ...]) -> list[PlannedTopic]:
    """Topics by (name, share of the publishes, operations)."""
    return [
        PlannedTopic(TopicLedger(name, CHANNELS, lives), names, share, dict.fromkeys(("", *CHANNELS), {False}))
        for name, share, names in operations
    ]


@contextlib.contextmanager
def _cut(topic: PlannedTopic, channels: tuple[str, ...], **kind: int | bool) -> Iterator[list[Cut]]:
    """While it is entered, the operation is under way in these channels; it is answered when it is left well."""
    now_ns = time.time_ns()
    cuts = [topic.ledger.channels[name].begin_cut(now_ns, **kind) for name in channels]
    yield cuts
    end_cuts(cuts, is_answered=True)


def end_cuts(cuts: list[Cut], *, is_answered: bool) -> None:
    now_ns = time.time_ns()
    for cut in cuts:
        cut.end_ns, cut.is_answered = now_ns, is_answered


def _query(topic: PlannedTopic, channel: str = "") -> str:
    return f"topic={topic.ledger.name}" + (f"&channel={channel}" if channel else "")


def _toggle_pause(nsqd: NsqdProcess, topic: PlannedTopic, channel: str) -> None:
    was_paused = topic.paused[channel] == {True}
    topic.paused[channel] = {True, False}
    asked_ns = time.time_ns()
    # An unpause that nobody answered may have come to nothing: then an earlier pause goes on.
    since_ns = topic.paused_since_ns[0] if topic.paused_since_ns is not None else asked_ns
    if not channel and not was_paused:
        topic.paused_since_ns = (since_ns, FOREVER_NS)
    kind = "channel" if channel else "topic"
    nsqd.post(f"/{kind}/{'unpause' if was_paused else 'pause'}?{_query(topic, channel)}")
    topic.paused[channel] = {not was_paused}
    if not channel:
        topic.paused_since_ns = None if was_paused else (since_ns, time.time_ns())


def _pause_topic(nsqd: NsqdProcess, topic: PlannedTopic, chance: random.Random) -> None:
    _toggle_pause(nsqd, topic, "")


def _pause_channel(nsqd: NsqdProcess, topic: PlannedTopic, chance: random.Random) -> None:
    _toggle_pause(nsqd, topic, chance.choice(CHANNELS))


def _empty_topic(nsqd: NsqdProcess, topic: PlannedTopic, chance: random.Random) -> None:
    """Takes from the channels what they do not have yet: all since a pause, or what comes at this moment."""
    asked_ns, answered_ns = topic.paused_since_ns or (time.time_ns(), FOREVER_NS)
    with _cut(topic, CHANNELS, spares_until_ns=asked_ns, takes_from_ns=answered_ns):
        nsqd.post(f"/topic/empty?{_query(topic)}")


def _empty_channel(nsqd: NsqdProcess, topic: PlannedTopic, chance: random.Random) -> None:
    """Leaves alone what the topic holds back since its pause."""
    channel = chance.choice(CHANNELS)
    asked_ns, answered_ns = topic.paused_since_ns or (FOREVER_NS, FOREVER_NS)
    with _cut(topic, (channel,)) as (cut,):
        cut.start_ns = min(cut.start_ns, asked_ns)
        nsqd.post(f"/channel/empty?{_query(topic, channel)}")
    cut.end_ns = min(cut.end_ns, answered_ns)


def _remake_channel(nsqd: NsqdProcess, topic: PlannedTopic, chance: random.Random) -> None:
    channel = chance.choice(CHANNELS)
    with _cut(topic, (channel,)):
        nsqd.http("POST", f"/channel/delete?{_query(topic, channel)}")  # or it is not there
        _make(nsqd, topic, channel)


def _remake_topic(nsqd: NsqdProcess, topic: PlannedTopic, chance: random.Random) -> None:
    with _cut(topic, CHANNELS):
        nsqd.http("POST", f"/topic/delete?{_query(topic)}")
        for channel in CHANNELS:
            _make(nsqd, topic, channel)


def _make(nsqd: NsqdProcess, topic: PlannedTopic, channel: str) -> None:
    nsqd.post(f"/topic/create?{_query(topic)}")
    nsqd.post(f"/channel/create?{_query(topic, channel)}")


def _seek_to(to: str, before_ns: Callable[[], int]) -> Callable[[NsqdProcess, PlannedTopic, random.Random], None]:
    def seek(nsqd: NsqdProcess, topic: PlannedTopic, chance: random.Random) -> None:
        channel = chance.choice(CHANNELS)
        time_ns = before_ns()
        with _cut(topic, (channel,), before_ns=time_ns, revives=True):
            nsqd.post(f"/channel/seek?{_query(topic, channel)}&to={to or _rfc3339(time_ns)}")

    return seek


def _a_moment_ago() -> int:
    """In whole microseconds, which a time in a query has."""
    return (time.time_ns() - 300 * MILLISECOND_NS) // 1000 * 1000


def _rfc3339(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{time_ns % 10**9:09d}Z"


OPERATIONS: dict[str, Callable[[NsqdProcess, PlannedTopic, random.Random], None]] = {
    "pause the topic": _pause_topic,
    "pause a channel": _pause_channel,
    "empty the topic": _empty_topic,
    "empty a channel": _empty_channel,
    "remake a channel": _remake_channel,
    "remake the topic": _remake_topic,
    "seek to the earliest": _seek_to("earliest", lambda: 0),
    "seek to the latest": _seek_to("latest", lambda: FOREVER_NS),
    "seek to a time": _seek_to("", _a_moment_ago),
}


# ---- between two lives, and at the end


def settle(nsqd: NsqdProcess, topics: list[PlannedTopic]) -> list[str]:
    """After a start: what was under way has happened or not, and what was paused is. Gives back what is wrong."""
    wrong = []
    for topic in topics:
        for channel in CHANNELS:
            if "remake the topic" in topic.operations:
                _make(nsqd, topic, channel)
        stats = nsqd.topic_stats(topic.ledger.name) or {"paused": None, "channels": []}
        states = {"": stats["paused"]} | {c["channel_name"]: c["paused"] for c in stats["channels"]}
        wrong += [
            f"{topic.ledger.name}/{name}: paused is {states.get(name)} after a restart, not in {expected}"
            for name, expected in topic.paused.items()
            if states.get(name) not in expected
        ]
        if not states[""]:
            topic.paused_since_ns = None
        elif topic.paused[""] != {True} and topic.paused_since_ns is not None:
            # An unpause that nobody answered may have passed on what was sent until now, and is undone.
            topic.paused_since_ns = (topic.paused_since_ns[0], time.time_ns())
        topic.paused = {name: {bool(states.get(name))} for name in topic.paused}
        for ledger in topic.ledger:
            end_cuts([cut for cut in ledger.cuts if cut.end_ns == FOREVER_NS], is_answered=False)
    return wrong


def unpause(nsqd: NsqdProcess, topics: list[PlannedTopic]) -> None:
    for topic in topics:
        for channel, states in topic.paused.items():
            if states == {True}:
                _toggle_pause(nsqd, topic, channel)
