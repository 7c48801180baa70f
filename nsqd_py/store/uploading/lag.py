"""How far the store is behind the feed that it follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nsqd_py.feed.feed import Feed
from nsqd_py.settings.durations import MILLISECOND_NS


class Lag(NamedTuple):
    """The changes that the store does not have."""

    messages: int
    size_bytes: int
    ms: int


class Stored(NamedTuple):
    """The changes of one feed that the store has."""

    messages: int = 0
    size_bytes: int = 0


class FollowedFeed:
    """A feed, with what the store has of it. `clock` gives nanoseconds.

    since_ns  of the oldest change that the base, with which the feed begins, brings to the store; 0 if there is none
    """

    def __init__(self, feed: Feed, clock: Callable[[], int], since_ns: int = 0) -> None:
        self.feed = feed
        self._clock = clock
        self._stored = Stored()
        self._round_since_ns = since_ns  # of the oldest change in the round or base that is being put

    def round_begins(self) -> None:
        """Count the changes of the feed as old as they are, until its round is stored."""
        self._round_since_ns = self.feed.since_ns

    def round_is_stored(self) -> None:
        self._stored = Stored(self.feed.message_count, self.feed.size_bytes)
        self._round_since_ns = 0

    def oldest_change_ns(self) -> int:
        """Return when the oldest change was made that the store does not have; 0 if there is none."""
        return min(filter(None, (self._round_since_ns, self.feed.since_ns)), default=0)

    def lag(self) -> Lag:
        feed = self.feed
        unread = feed.unread()
        oldest_ns = self.oldest_change_ns()
        behind_ns = self._clock() - oldest_ns if oldest_ns else 0
        messages = unread.messages + feed.message_count - self._stored.messages
        size_bytes = unread.size_bytes + feed.size_bytes - self._stored.size_bytes
        return Lag(messages, size_bytes, behind_ns // MILLISECOND_NS)
