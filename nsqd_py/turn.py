"""The end of a turn of the event loop, where batched work is done.

While the loop dispatches what is readable, publishes gather in their topics, channels with something new to
deliver and connections with something to send register here. When all of it has been read, the log is
written once per topic, then channels deliver, then each connection sends everything in one call. So a
batch grows with the load, and a lone message waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from nsqd_py.logs import Log


class Committer(Protocol):
    """A topic with publishes that are not in its log yet."""

    def commit(self) -> None: ...


class Deliverer(Protocol):
    """A channel that may have something for a client that is ready."""

    def deliver(self) -> None: ...


class Flusher(Protocol):
    """A connection with something to send."""

    def flush(self) -> None: ...


class Turn:
    """What is to be done at the end of this turn; each thing registers at most once (it keeps its own flag)."""

    __slots__ = ("_committers", "_deliverers", "_flushers", "_log", "_loop", "_scheduled")

    def __init__(self, loop: Any, log: Log) -> None:
        self._loop = loop
        self._log = log
        self._scheduled = False
        self._committers: list[Committer] = []
        self._deliverers: list[Deliverer] = []
        self._flushers: list[Flusher] = []

    def add_committer(self, committer: Committer) -> None:
        self._committers.append(committer)
        self._schedule()

    def add_deliverer(self, deliverer: Deliverer) -> None:
        self._deliverers.append(deliverer)
        self._schedule()

    def add_flusher(self, flusher: Flusher) -> None:
        self._flushers.append(flusher)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.run_callback(self.end)

    def end(self) -> None:
        """Do all that is registered, in the order that durability needs: log, deliveries, answers."""
        self._scheduled = False
        committers, self._committers = self._committers, []
        for committer in committers:
            self._guard(committer.commit)
        deliverers, self._deliverers = self._deliverers, []
        for deliverer in deliverers:
            self._guard(deliverer.deliver)
        flushers, self._flushers = self._flushers, []
        for flusher in flushers:
            self._guard(flusher.flush)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # a bug with one topic or client must not stop the others
            self._log.exception("end of turn: %s - %r", work, error)
