"""One nsqd of a producer and its unanswered publishes, and the publishes that wait for a connection.

nsqd answers in the order of the commands, without naming them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.publishing.publish import DONE, SENT, WAITING, PendingPublish
from nsqd_py.runtime.outages import Backoff


class WindowLimits(NamedTuple):
    """The size of a window. The last publish may exceed `size_bytes`, so that no body is too large."""

    publishes: int
    size_bytes: int


def _waiting(publish: PendingPublish) -> PendingPublish | None:
    """Mark the publish as waiting, and return it; None if it has failed already."""
    if publish.state is not SENT:
        return None
    publish.state = WAITING
    return publish


# One of many publishes may be what ends the connections. After this many losses each is sent alone.
ALONE_AFTER_LOSSES = 2


class WaitingRoom:
    """Publishes that wait to be sent, in order: at most a window of new ones, and those that must be sent again.

    has_room    True if a new one may be added
    size_bytes  of all of them on the wire
    """

    __slots__ = ("_limits", "_publishes", "has_room", "size_bytes")

    def __init__(self, limits: WindowLimits) -> None:
        self._limits = limits
        self._publishes: deque[PendingPublish] = deque()
        self.size_bytes = 0
        self.has_room = True

    def __len__(self) -> int:
        return len(self._publishes)

    @property
    def is_half_empty(self) -> bool:
        """True if callers that wait for room should be woken: sending hundreds at a time costs less."""
        return 2 * len(self) <= self._limits.publishes and 2 * self.size_bytes <= self._limits.size_bytes

    @property
    def is_next_alone(self) -> bool:
        """True if the first must be the only one on its connection."""
        return self._publishes[0].losses >= ALONE_AFTER_LOSSES

    def add(self, publish: PendingPublish) -> None:
        publishes = self._publishes
        publishes.append(publish)
        self.size_bytes += publish.size_bytes
        if len(publishes) >= self._limits.publishes or self.size_bytes >= self._limits.size_bytes:
            self.has_room = False

    def add_all(self, publishes: Iterable[PendingPublish], size_bytes: int) -> None:
        self._publishes.extend(publishes)
        self._count(size_bytes)

    def put_back(self, publishes: Sequence[PendingPublish]) -> None:
        """Put publishes before all others, in their order."""
        self._publishes.extendleft(reversed(publishes))
        self._count(sum(publish.size_bytes for publish in publishes))

    def take(self, room: WindowLimits) -> list[PendingPublish]:
        """Remove and return the first publishes that there is room for, and that need not be sent alone."""
        taken = []
        publishes = self._publishes
        left_bytes = room.size_bytes
        for _ in range(min(room.publishes, len(publishes))):
            if left_bytes <= 0 or publishes[0].losses >= ALONE_AFTER_LOSSES:
                break
            publish = publishes.popleft()
            left_bytes -= publish.size_bytes
            taken.append(publish)
        self._count(left_bytes - room.size_bytes)
        return taken

    def take_one(self) -> list[PendingPublish]:
        """Remove and return the first publish."""
        publish = self._publishes.popleft()
        self._count(-publish.size_bytes)
        return [publish]

    def take_all(self) -> list[PendingPublish]:
        taken = list(self._publishes)
        self._publishes.clear()
        self._count(-self.size_bytes)
        return taken

    def take_overdue(self, now_s: float) -> list[PendingPublish]:
        """Remove and return the publishes whose time is over."""
        overdue = [publish for publish in self._publishes if publish.deadline_s <= now_s]
        if overdue:
            rest = [publish for publish in self._publishes if publish.deadline_s > now_s]
            self.take_all()
            self.put_back(rest)
        return overdue

    def _count(self, more_bytes: int) -> None:
        self.size_bytes += more_bytes
        self.has_room = len(self) < self._limits.publishes and self.size_bytes < self._limits.size_bytes


class ConnectionWriter:
    """An nsqd, its connection if it has one, and its unanswered publishes, in order.

    pause           when it may be tried again after a failure; `Dispatcher.pause_s` may shorten it
    failed_s        time of the last failure
    is_open         True if publishes may be sent
    failure         why it could not be connected, or was lost; None while it is open
    is_rest_unread  True if nsqd refused a command in a way that shows that it read nothing behind it
    has_refused     True if it answered with an error: it is about to close the connection
    is_wanted       False if nsqlookupd does not know it any more
    size_bytes      of all unanswered publishes on the wire
    stirred_s       the time of the last answer, or when the first unanswered publish was sent
    """

    def __init__(self, address: str, limits: WindowLimits, pause: Backoff) -> None:
        self.address = address
        self.pause = pause
        self.failed_s = 0.0
        self.connection: Any = None  # belongs to the shell
        self.is_open = False
        self.is_wanted = True
        self.failure: NsqClientError | None = None
        self.is_rest_unread = False
        self.has_refused = False
        self.unanswered: deque[PendingPublish] = deque()
        self.size_bytes = 0
        self.stirred_s = 0.0
        self._limits = limits
        self._is_alone = False

    @property
    def room(self) -> WindowLimits:
        """Return how much more may be sent; none if a number is 0 or less."""
        if self._is_alone:
            return WindowLimits(0, 0)
        return WindowLimits(self._limits.publishes - len(self.unanswered), self._limits.size_bytes - self.size_bytes)

    def add(self, publishes: Sequence[PendingPublish], now_s: float, *, is_alone: bool = False) -> None:
        """Add publishes that were sent. With `is_alone`, no others have room until an answer."""
        if not self.unanswered:
            self.stirred_s = now_s
        for publish in publishes:
            publish.state = SENT
            self.size_bytes += publish.size_bytes
        self.unanswered.extend(publishes)
        self._is_alone = is_alone

    def take_done(self, count: int, now_s: float) -> list[PendingPublish]:
        """Remove the next `count` publishes, which were answered OK. Return those that were not over before."""
        done = []
        take = self.unanswered.popleft
        size_bytes = 0
        for _ in range(min(count, len(self.unanswered))):
            publish = take()
            size_bytes += publish.size_bytes
            if publish.state is SENT:
                publish.state = DONE
                done.append(publish)
        self._taken(size_bytes, now_s)
        return done

    def take_refused(self, now_s: float) -> PendingPublish | None:
        """Remove the next publish, which was refused. Return it as waiting again; None if it was over before."""
        if not self.unanswered:
            return None
        publish = self.unanswered.popleft()
        self._taken(publish.size_bytes, now_s)
        return _waiting(publish)

    def take_unanswered(self) -> list[PendingPublish]:
        """Remove all publishes of a lost connection. Return them in order, as waiting again."""
        left = [publish for publish in self.unanswered if _waiting(publish)]
        self.unanswered.clear()
        self.size_bytes = 0
        self._is_alone = False
        return left

    def is_hung(self, now_s: float, answer_timeout_s: float) -> bool:
        """True if an answer is due and none has come for `answer_timeout_s`."""
        return bool(self.unanswered) and now_s - self.stirred_s >= answer_timeout_s

    def _taken(self, size_bytes: int, now_s: float) -> None:
        self.size_bytes -= size_bytes
        self.stirred_s = now_s
        self._is_alone = False
