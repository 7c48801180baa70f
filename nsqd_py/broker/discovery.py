"""The interface through which a broker reports new and deleted topics and channels to nsqlookupds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nsqd_py.queue.topic import Topic


class Lookups(Protocol):
    """The nsqlookupds of a broker. Methods do not block unless their docstring says so."""

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Register with exactly these nsqlookupds from now on."""

    def topic_made(self, topic: Topic) -> None:
        """Handle a new topic, which is held until its channels are known."""

    def notify(self, topic_name: str, channel_name: str, was_deleted: bool) -> None:
        """Report a new or deleted channel, or topic (with the channel name "")."""

    def wait_until_started(self, topic: Topic, timeout_s: float | None = None) -> bool:
        """Wait until the channels of a new topic are known; True if they are. Blocks this greenlet."""

    def wait_until_all_started(self, timeout_s: float) -> None:
        """Wait until the channels of all current topics are known. Blocks this greenlet."""

    def close(self) -> None:
        """Unregister this nsqd. Blocks this greenlet."""


class NoLookups:
    """The interface without any nsqlookupd."""

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
