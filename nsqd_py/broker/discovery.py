"""Who is told of what a broker makes and deletes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nsqd_py.queue.topic import Topic


class Lookups(Protocol):
    """nsqlookupds, as a broker and its admin calls see them. Nothing here waits, unless it says so."""

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Register with these from now on, and with no others."""

    def topic_made(self, topic: Topic) -> None:
        """There is a new topic. It is held until its channels are known."""

    def notify(self, topic_name: str, channel_name: str, was_deleted: bool) -> None:
        """A topic (with the channel "") or a channel was made or deleted."""

    def wait_until_started(self, topic: Topic, timeout_s: float | None = None) -> bool:
        """Wait until the channels of a new topic are known, and tell whether they are. Blocks this greenlet."""

    def wait_until_all_started(self, timeout_s: float) -> None:
        """Likewise for all topics of now."""

    def close(self) -> None:
        """Let them forget this nsqd. Blocks this greenlet until it is done."""


class NoLookups:
    """There are none."""

    def set_addresses(self, addresses: Sequence[str]) -> None:
        pass

    def topic_made(self, topic: Topic) -> None:
        pass

    def notify(self, topic_name: str, channel_name: str, was_deleted: bool) -> None:
        pass

    def wait_until_started(self, topic: Topic, timeout_s: float | None = None) -> bool:
        return topic.is_started

    def wait_until_all_started(self, timeout_s: float) -> None:
        pass

    def close(self) -> None:
        pass
