"""Publishes that no connection has: new ones until the end of the turn, and those that are to be sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from nsqd_py.client.publishing.publish import Publish
from nsqd_py.client.publishing.window import WindowLimits

# One of many may be what ends the connections, unseen. After so many losses each goes alone.
ALONE_AFTER_LOSSES = 2


class WaitingRoom:
    """In the order in which they are to be sent; as much of them as a window may hold, and what comes back.

    has_room    for a new one
    size_bytes  of all of them on the wire
    """

    __slots__ = ("_limits", "_publishes", "has_room", "size_bytes")

    def __init__(self, limits: WindowLimits) -> None:
        self._limits = limits
        self._publishes: deque[Publish] = deque()
        self.size_bytes = 0
        self.has_room = True

    def __len__(self) -> int:
        return len(self._publishes)

    @property
    def is_half_empty(self) -> bool:
        """Whether it is worth while to wake who waits for room: one that sends by the hundred costs less."""
        return 2 * len(self) <= self._limits.publishes and 2 * self.size_bytes <= self._limits.size_bytes

    @property
    def is_next_alone(self) -> bool:
        """Whether the first may share a connection with no other."""
        return self._publishes[0].losses >= ALONE_AFTER_LOSSES

    def add(self, publish: Publish) -> None:
        publishes = self._publishes
        publishes.append(publish)
        self.size_bytes += publish.size_bytes
        if len(publishes) >= self._limits.publishes or self.size_bytes >= self._limits.size_bytes:
            self.has_room = False

    def put_back(self, publishes: Sequence[Publish]) -> None:
        """Before all others, in their order."""
        self._publishes.extendleft(reversed(publishes))
        self._count(sum(publish.size_bytes for publish in publishes))

    def take(self, room: WindowLimits) -> list[Publish]:
        """The first, as many as there is room for, of those that need not go alone."""
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

    def take_one(self) -> list[Publish]:
        """The first."""
        publish = self._publishes.popleft()
        self._count(-publish.size_bytes)
        return [publish]

    def take_all(self) -> list[Publish]:
        taken = list(self._publishes)
        self._publishes.clear()
        self._count(-self.size_bytes)
        return taken

    def take_overdue(self, now_s: float) -> list[Publish]:
        """Those whose time is over."""
        overdue = [publish for publish in self._publishes if publish.deadline_s <= now_s]
        if overdue:
            rest = [publish for publish in self._publishes if publish.deadline_s > now_s]
            self.take_all()
            self.put_back(rest)
        return overdue

    def _count(self, more_bytes: int) -> None:
        self.size_bytes += more_bytes
        self.has_room = len(self) < self._limits.publishes and self.size_bytes < self._limits.size_bytes
