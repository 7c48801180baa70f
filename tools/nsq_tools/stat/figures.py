"""What an nsqd says in `/stats?format=json`, as counts by topic and channel. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import add, itemgetter, sub
from typing import Any, NamedTuple


class BadStats(Exception):
    """The answer is not that of an nsqd; the text says what is missing."""


class Counts(NamedTuple):
    """Figures of a topic, a channel, or a sum of some; or, as floats, how much each changes in a second."""

    depth: float = 0
    backend_depth: float = 0
    in_flight: float = 0
    deferred: float = 0
    messages: float = 0
    requeued: float = 0
    timed_out: float = 0
    clients: float = 0

    @property
    def memory_depth(self) -> float:
        return self.depth - self.backend_depth

    @property
    def left(self) -> float:
        """Messages that came, and are no longer in the depth: what Go's nsq_stat calls egress."""
        return self.messages - self.depth

    @property
    def finished(self) -> float:
        """Messages that came, and wait no more in any way."""
        return self.left - self.in_flight - self.deferred

    def plus(self, other: Counts) -> Counts:
        return Counts._make(map(add, self, other))

    def minus(self, other: Counts) -> Counts:
        return Counts._make(map(sub, self, other))

    def per_s(self, earlier: Counts, elapsed_s: float) -> Counts:
        """How much each changed in a second of the time between."""
        return Counts._make([(now - before) / elapsed_s for now, before in zip(self, earlier, strict=True)])


NOTHING = Counts()
# Sums of such numbers are still exact as floats.
_MOST_COUNT = 2**53

_topic_figures = itemgetter("depth", "backend_depth", "message_count")
_channel_figures = itemgetter(
    "depth", "backend_depth", "in_flight_count", "deferred_count",
    "message_count", "requeue_count", "timeout_count", "client_count",
)  # fmt: skip


class Name(NamedTuple):
    """A topic, or one of its channels; `channel` is empty for the topic itself."""

    topic: str
    channel: str = ""

    def __str__(self) -> str:
        return f"{self.topic}/{self.channel}" if self.channel else self.topic


@dataclass(frozen=True, slots=True)
class Reading:
    """The counts of one nsqd at one moment (`taken_s`, on a steady clock).

    `start_time` tells one run of it from the next: its counts begin anew with each.
    """

    node: str
    taken_s: float
    start_time: int
    counts: Mapping[Name, Counts]
    paused: frozenset[Name]


def read_stats(node: str, document: Any, taken_s: float) -> Reading:
    """The reading in an answer of `/stats?format=json`. Raises BadStats."""
    counts: dict[Name, Counts] = {}
    paused = []
    try:
        for topic in document["topics"] or ():
            name = topic["topic_name"]
            counts[Name(name)] = _counts_of_topic(topic)
            if topic["paused"]:
                paused.append(Name(name))
            for channel in topic["channels"] or ():
                key = Name(name, channel["channel_name"])
                counts[key] = Counts._make(_whole(_channel_figures(channel)))
                if channel["paused"]:
                    paused.append(key)
        return Reading(node, taken_s, int(document.get("start_time", 0)), counts, frozenset(paused))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise BadStats(f"the answer is not that of an nsqd ({type(error).__name__}: {error})") from error


def _counts_of_topic(topic: Mapping[str, Any]) -> Counts:
    depth, backend_depth, messages = _whole(_topic_figures(topic))
    return Counts(depth=depth, backend_depth=backend_depth, messages=messages)


def _whole(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return them. Raises ValueError for what could not be summed, and TypeError for what is no number."""
    if type(sum(numbers)) is not int or max(numbers) > _MOST_COUNT or min(numbers) < -_MOST_COUNT:
        raise ValueError("a count is no whole number, or too large for one")
    return numbers
