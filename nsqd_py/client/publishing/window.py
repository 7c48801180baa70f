"""What one connection was sent and has not answered: nsqd answers in the order of the commands, without naming them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nsqd_py.client.publishing.publish import DONE, SENT, WAITING, Publish


class WindowLimits(NamedTuple):
    """How much may be there. The last that is let in may go over `size_bytes`: no body is too large to leave."""

    publishes: int
    size_bytes: int


class Window:
    """The unanswered publishes of one connection, in order.

    size_bytes  of all of them on the wire
    stirred_s   when there last was an answer, or something to wait for again after there was nothing
    """

    __slots__ = ("_is_alone", "_limits", "_publishes", "size_bytes", "stirred_s")

    def __init__(self, limits: WindowLimits) -> None:
        self._limits = limits
        self._publishes: deque[Publish] = deque()
        self._is_alone = False
        self.size_bytes = 0
        self.stirred_s = 0.0

    def __len__(self) -> int:
        return len(self._publishes)

    def __iter__(self) -> Iterator[Publish]:
        return iter(self._publishes)

    @property
    def room(self) -> WindowLimits:
        """How much more may be sent; nothing, when either is 0 or less."""
        if self._is_alone:
            return WindowLimits(0, 0)
        return WindowLimits(self._limits.publishes - len(self._publishes), self._limits.size_bytes - self.size_bytes)

    def add(self, publishes: Sequence[Publish], now_s: float, *, is_alone: bool = False) -> None:
        """They were sent. With `is_alone` there is no room for others until an answer."""
        if not self._publishes:
            self.stirred_s = now_s
        for publish in publishes:
            publish.state = SENT
            self.size_bytes += publish.size_bytes
        self._publishes.extend(publishes)
        self._is_alone = is_alone

    def take_done(self, count: int, now_s: float) -> list[Publish]:
        """The next `count` were answered OK. Those that were done with before are left out."""
        done = []
        take = self._publishes.popleft
        size_bytes = 0
        for _ in range(min(count, len(self._publishes))):
            publish = take()
            size_bytes += publish.size_bytes
            if publish.state is SENT:
                publish.state = DONE
                done.append(publish)
        self._taken(size_bytes, now_s)
        return done

    def take_refused(self, now_s: float) -> Publish | None:
        """The next was answered with an error; None when it was done with before. It is waiting again."""
        if not self._publishes:
            return None
        publish = self._publishes.popleft()
        self._taken(publish.size_bytes, now_s)
        return _waiting(publish)

    def take_unanswered(self) -> list[Publish]:
        """The connection is gone: all that is left, in order. They are waiting again."""
        left = [publish for publish in self._publishes if _waiting(publish)]
        self._publishes.clear()
        self.size_bytes = 0
        self._is_alone = False
        return left

    def is_hung(self, now_s: float, answer_timeout_s: float) -> bool:
        """Whether an answer is due and none has come for `answer_timeout_s`."""
        return bool(self._publishes) and now_s - self.stirred_s >= answer_timeout_s

    def _taken(self, size_bytes: int, now_s: float) -> None:
        self.size_bytes -= size_bytes
        self.stirred_s = now_s
        self._is_alone = False


def _waiting(publish: Publish) -> Publish | None:
    """It, when nobody was told yet that it failed."""
    if publish.state is not SENT:
        return None
    publish.state = WAITING
    return publish
