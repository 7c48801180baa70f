"""The nsqlookupds of an nsqd. Their modules (HTTP client, TLS) are imported when the first address is set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nsqd_py.broker.creation import NoLookups

if TYPE_CHECKING:
    from nsqd_py.lookup.peers import LookupPeers
    from nsqd_py.queue.topic import Topic


class LookupsOnDemand(NoLookups):
    """The `Lookups` of a daemon. `make` is called once, when the first address is set, and does the imports."""

    def __init__(self, make: Callable[[], LookupPeers]) -> None:
        self._make = make
        self._peers: LookupPeers | None = None
        self._is_running = False

    @property
    def has_peers(self) -> bool:
        return self._peers is not None

    def start(self) -> None:
        """Connect to all nsqlookupds."""
        self._is_running = True
        if self._peers is not None:
            self._peers.start()

    def close(self) -> None:
        self._is_running = False
        if self._peers is not None:
            self._peers.close()

    def set_addresses(self, addresses: Sequence[str]) -> None:
        if self._peers is None:
            if not addresses:
                return
            self._peers = self._make()
            if self._is_running:
                self._peers.start()
        self._peers.set_addresses(addresses)

    def topic_made(self, topic: Topic) -> None:
        if self._peers is not None:
            self._peers.topic_made(topic)

    def notify(self, topic_name: str, channel_name: str, was_deleted: bool) -> None:
        if self._peers is not None:
            self._peers.notify(topic_name, channel_name, was_deleted)

    def wait_until_started(self, topic: Topic, timeout_s: float | None = None) -> bool:
        if self._peers is None:
            return topic.is_started
        return self._peers.wait_until_started(topic, timeout_s)

    def wait_until_all_started(self, timeout_s: float) -> None:
        if self._peers is not None:
            self._peers.wait_until_all_started(timeout_s)
