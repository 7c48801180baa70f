"""Questions that are asked of one server again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import gevent

from nsqd_py.cluster.producers import SharedAddress
from nsqd_py.cluster.values import Statistics


class Question:
    """A question that is asked of one server repeatedly, once at a time."""

    def __init__(self, ask: Callable[[], None], clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self.greenlet: gevent.Greenlet[[], None] | None = None
        self.began_s = 0.0
        self.took_s = 0.0  # the duration of the last answer
        self.is_late = False
        self.late_rounds = self.prompt_rounds = 0  # the last ones without a break
        self.is_heard = False  # the answer has arrived and waits to be read

    @property
    def is_busy(self) -> bool:
        return self.greenlet is not None and not self.greenlet.ready()

    def begin(self, now_s: float) -> None:
        """Ask, unless the last answer has not arrived yet."""
        if not self.is_busy:
            self.began_s = now_s
            self.is_heard = False
            self.greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        try:
            self._ask()
        finally:
            self.took_s = self._clock() - self.began_s

    def close(self) -> None:
        self._ask = lambda: None  # the round that goes on may begin it once more
        if self.greenlet is not None:
            self.greenlet.kill(block=False)


class LookupQuestion(Question):
    """The question which nsqds an nsqlookupd lists, and what its last good answer says.

    nodes     the nsqds; None before the first answer
    shared    the addresses that several nsqds announce
    departed  the nsqds that have ended cleanly, by HTTP address
    digest    the hash of the answer
    """

    nodes: list[Statistics] | None = None
    shared: Mapping[str, SharedAddress] = MappingProxyType({})
    departed: frozenset[str] = frozenset()
    digest: int | None = None
