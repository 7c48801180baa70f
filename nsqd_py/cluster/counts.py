"""The counts of a topic or channel, and their rates. Pure."""

from __future__ import annotations

from typing import NamedTuple


class TopicCounts(NamedTuple):
    depth: int
    backend_depth: int
    messages: int


class ChannelCounts(NamedTuple):
    depth: int
    backend_depth: int
    in_flight: int
    deferred: int
    messages: int
    requeued: int
    timed_out: int
    clients: int

    @property
    def memory_depth(self) -> int:
        return self.depth - self.backend_depth

    @property
    def left(self) -> int:
        """Messages that were received and are no longer in the depth; Go's nsq_stat calls them egress."""
        return self.messages - self.depth


class Rates(NamedTuple):
    """Rates in thousandths per second. `growth` is the change of the depth. A topic has only it and `messages`."""

    messages: int = 0
    requeued: int = 0
    timed_out: int = 0
    finished: int = 0
    growth: int = 0

    @property
    def left(self) -> int:
        """The rate of `ChannelCounts.left`."""
        return self.messages - self.growth
