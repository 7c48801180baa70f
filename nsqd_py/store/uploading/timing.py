"""When a round begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

from gevent.event import Event

from nsqd_py.feed.feed import Feed
from nsqd_py.settings.durations import SECOND_NS

_TICK_S = 1.0
# Publishers that were answered together publish again together: the next round waits for the others of them.
_GATHER_S = 0.002


class Waiting(Protocol):
    """The publishers that wait for the store, as a stream sees them."""

    def last_write(self) -> int:
        """Return the number of the last write to a log."""

    def count(self) -> int:
        """Return how many publishers wait."""

    def stored(self, write: int) -> None:
        """Answer the publishers up to this write."""


class RoundTimer:
    """Lets a round begin each interval if something is new, and at once if publishers wait for it.

    is_idle  True while it waits for that
    """

    def __init__(self, waiting: Waiting, clock: Callable[[], int], interval_ns: int) -> None:
        self._waiting = waiting
        self._clock = clock
        self._interval_ns = interval_ns
        self._wake = Event()
        self.is_idle = False
        self._is_hurried = False  # nsqd ends
        self._is_noted = False  # that the feed has something new
        self._answered = 0  # publishers, by the last round
        self._gather_until_s = 0.0
        self._next_tick_s = 0.0

    # ---- what wakes it

    def hurry(self) -> None:
        """Let a round begin at once from now on."""
        self._is_hurried = True
        self._wake.set()

    def publishers_wait(self) -> None:
        """Let a round begin soon, since publishers wait for it."""
        if self.is_idle:
            self._wake.set()

    def note_change(self) -> None:
        """Note that the feed has something new."""
        if not self._is_noted:
            self._is_noted = True
            self._wake.set()

    def wake(self) -> None:
        """Let the stream look at what it has to do."""
        self._wake.set()

    # ---- waiting

    @contextmanager
    def idling(self) -> Iterator[None]:
        """Be idle until the end of a `with`."""
        self.is_idle = True
        try:
            yield
        finally:
            self.is_idle = False

    def is_tick(self) -> bool:
        """True once a second: look at the files."""
        now_s = monotonic()
        if now_s < self._next_tick_s:
            return False
        self._next_tick_s = now_s + _TICK_S
        return True

    def wait_s(self, feed: Feed, last_round_s: float, *, are_files_new: bool) -> float:
        """Return the time until a round must begin, or until the next look at the files."""
        count = self._waiting.count()
        if count:
            if count < self._answered:
                return self._gather_until_s - monotonic()
            return 0.0
        is_new = bool(feed.since_ns or are_files_new)
        if self._is_hurried and is_new:
            return 0.0
        if feed.since_ns:
            return (feed.since_ns + self._interval_ns - self._clock()) / SECOND_NS
        if is_new or feed.is_due:
            return last_round_s + self._interval_ns / SECOND_NS - monotonic()
        return _TICK_S

    def sleep(self, wait_s: float) -> None:
        """Wait for this time, or until something is new. Blocks this greenlet."""
        self._wake.clear()
        self._wake.wait(min(wait_s, _TICK_S))

    # ---- rounds

    def round_begins(self) -> int:
        """Note the next change again. Return the number of the last write, which the round covers."""
        self._is_noted = False
        return self._waiting.last_write()

    def round_is_stored(self, covers: int) -> None:
        """Answer the publishers that waited for the round, and expect them again."""
        before = self._waiting.count()
        self._waiting.stored(covers)
        self._answered = before - self._waiting.count()
        self._gather_until_s = monotonic() + _GATHER_S
