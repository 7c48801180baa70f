"""How far the store is behind the feed that it follows."""

from __future__ import annotations

from nsqd_py.feed.feed import Feed
from nsqd_py.feed.lag import Amount, Lag


class FollowedFeed:
    """A feed, with what the store has of it.

    since_ns  of the oldest change that the base, with which the feed begins, brings to the store; 0 if there is none
    """

    def __init__(self, feed: Feed, since_ns: int) -> None:
        self.feed = feed
        self._stored = Amount()
        self._round_since_ns = since_ns  # of the oldest change in the round or base that is being put

    def round_begins(self) -> None:
        """Count the changes of the feed as old as they are, until its round is stored."""
        self._round_since_ns = self.feed.since_ns

    def round_is_stored(self) -> None:
        self._stored = self.feed.amount
        self._round_since_ns = 0

    def oldest_change_ns(self) -> int:
        """Return when the oldest change was made that the store does not have; 0 if there is none."""
        return self.feed.oldest_ns(self._round_since_ns)

    def lag(self) -> Lag:
        return self.feed.lag(self._stored, self._round_since_ns)
