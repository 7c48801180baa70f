"""The answer of an nsqd to `/stats?format=json` as counts by topic and channel. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import add, itemgetter, sub
from typing import Any, NamedTuple


class BadStats(Exception):
    """The answer is not from an nsqd. The text is the reason."""


class Counts(NamedTuple):
    """Counts of a topic or channel, or sums of them; or, as floats, their changes per second."""

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
        """Messages that were received and are no longer in the depth; Go's nsq_stat calls them egress."""
        return self.messages - self.depth

    @property
    def finished(self) -> float:
        """Messages that were received, and are neither in the depth, in flight nor deferred."""
        return self.left - self.in_flight - self.deferred

    def plus(self, other: Counts) -> Counts:
        return Counts._make(map(add, self, other))

    def minus(self, other: Counts) -> Counts:
        return Counts._make(map(sub, self, other))

    def per_s(self, earlier: Counts, elapsed_s: float) -> Counts:
        """Return the change per second since `earlier`."""
        return Counts._make([(now - before) / elapsed_s for now, before in zip(self, earlier, strict=True)])


NOTHING = Counts()
# Larger numbers are not exact as floats.
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
    """The counts of one nsqd at the time `taken_s` (monotonic).

    A different `start_time` means that nsqd has restarted, and its counts with it.
    """

    node: str
    taken_s: float
    start_time: int
    counts: Mapping[Name, Counts]
    paused: frozenset[Name]


def read_stats(node: str, document: Any, taken_s: float) -> Reading:
    """Return the reading from an answer to `/stats?format=json`. Raises BadStats."""
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
        raise BadStats(f"the answer is not from an nsqd ({type(error).__name__}: {error})") from error


def _counts_of_topic(topic: Mapping[str, Any]) -> Counts:
    depth, backend_depth, messages = _whole(_topic_figures(topic))
    return Counts(depth=depth, backend_depth=backend_depth, messages=messages)


def _whole(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers. Raises ValueError if one is not a whole number or too large, TypeError if not a number."""
    if type(sum(numbers)) is not int or max(numbers) > _MOST_COUNT or min(numbers) < -_MOST_COUNT:
        raise ValueError("a count is not a whole number, or is too large")
    return numbers
