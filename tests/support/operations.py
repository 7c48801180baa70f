"""What somebody does to topics and channels while a mixed load runs: it is noted in the history as a cut, or as a pause."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.support.ledger import FOREVER_NS, Bodies, History
from tests.support.nsqd_process import NsqdProcess

CHANNELS = ("left", "right")
MILLISECOND_NS = 1_000_000


@dataclass
class PlannedTopic:
    """A topic of the load: how often it is published to, and what somebody does to it. Its channels are CHANNELS.

    The clock of its history is the wall clock, which seeks use.
    """

    name: str
    history: History
    operations: tuple[str, ...]
    share: int
    bodies: Bodies = field(default_factory=Bodies)
    # By channel, "" for the topic: the states of pause that are possible, as far as the answers tell.
    paused: dict[str, set[bool]] = field(default_factory=dict)
    # When its pause was asked for and answered. Where several may have begun it, the first and the last of these times.
    paused_since_ns: tuple[int, int] | None = None


def plan(history: History, operations: tuple[tuple[str, int, tuple[str, ...]], ...]) -> list[PlannedTopic]:
    """Topics by (name, share of the publishes, operations)."""
    return [
        PlannedTopic(name, history, names, share, paused=dict.fromkeys(("", *CHANNELS), {False}))
        for name, share, names in operations
    ]


@contextlib.contextmanager
def _cut(
    topic: PlannedTopic, channels: tuple[str, ...], *, latest_ns: int = FOREVER_NS, **parameters: int | bool
) -> Iterator[None]:
    """While it is entered, the operation is under way in these channels; it is answered when it is left well."""
    cuts = [topic.history.cut(topic.name, channel, **parameters) for channel in channels]
    yield
    for cut in cuts:
        topic.history.cut_ended(cut, is_answered=True, latest_ns=latest_ns)


def _query(topic: PlannedTopic, channel: str = "") -> str:
    return f"topic={topic.name}" + (f"&channel={channel}" if channel else "")


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
    with _cut(topic, (channel,), start_ns=min(time.time_ns(), asked_ns), latest_ns=answered_ns):
        nsqd.post(f"/channel/empty?{_query(topic, channel)}")


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


def _seek_to(
    to: str, before_ns: Callable[[], int]
) -> Callable[[NsqdProcess, PlannedTopic, random.Random], None]:
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
    return (
        datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        + f".{time_ns % 10**9:09d}Z"
    )


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
    """After a start: what was paused is. Gives back what is wrong."""
    wrong = []
    for topic in topics:
        for channel in CHANNELS:
            if "remake the topic" in topic.operations:
                _make(nsqd, topic, channel)
        stats = nsqd.topic_stats(topic.name) or {"paused": None, "channels": []}
        states = {"": stats["paused"]} | {c["channel_name"]: c["paused"] for c in stats["channels"]}
        wrong += [
            f"{topic.name}/{name}: paused is {states.get(name)} after a restart, not in {expected}"
            for name, expected in topic.paused.items()
            if states.get(name) not in expected
        ]
        if not states[""]:
            topic.paused_since_ns = None
        elif topic.paused[""] != {True} and topic.paused_since_ns is not None:
            # An unpause that nobody answered may have passed on what was sent until now, and is undone.
            topic.paused_since_ns = (topic.paused_since_ns[0], time.time_ns())
        topic.paused = {name: {bool(states.get(name))} for name in topic.paused}
    return wrong


def unpause(nsqd: NsqdProcess, topics: list[PlannedTopic]) -> None:
    for topic in topics:
        for channel, states in topic.paused.items():
            if states == {True}:
                _toggle_pause(nsqd, topic, channel)
