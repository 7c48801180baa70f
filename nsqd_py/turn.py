"""The end of a turn of the event loop, where batched work is done.

While the loop dispatches what is readable, publishes gather in their topics, channels with something new to
deliver and connections with something to send register here. When all of it has been read, the log is
written once per topic, then channels deliver, then each connection sends everything in one call. So a
batch grows with the load, and a lone message waits for nothing.
"""

from __future__ import annotations

from typing import Any, Protocol

from gevent import getcurrent

from nsqd_py.logs import Log

_LOWEST_PRIORITY = -2
_LINGER_POLLS = 40  # 1 to 2 us each


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
    """What is to be done at the end of this turn; each thing registers at most once (it keeps its own flag).

    After a turn with work the loop polls a few times more before it sleeps: where a client answers at once, waking
    up a sleeping processor would cost more than all the rest (a lone PUB on a virtual machine: 16 k/s, not 9 k/s).

    The end is a check watcher of the lowest priority, which the loop calls after all that was readable and all
    timers: no callback is scheduled per turn (1.5 us). What greenlets register has no such end coming by itself,
    since they run before the loop polls; for them one is scheduled.
    """

    __slots__ = (
        "_committers", "_deliverers", "_flushers", "_hub", "_lingerer", "_lingers", "_log", "_scheduled", "_watcher",
    )  # fmt: skip

    def __init__(self, hub: Any, log: Log) -> None:
        self._hub = hub
        self._log = log
        self._scheduled = False
        self._committers: list[Committer] = []
        self._deliverers: list[Deliverer] = []
        self._flushers: list[Flusher] = []
        self._watcher = hub.loop.check(ref=False, priority=_LOWEST_PRIORITY)
        self._watcher.start(self.end)
        self._lingerer = hub.loop.idle(ref=False)
        self._lingers = 0

    def add_committer(self, committer: Committer) -> None:
        self._committers.append(committer)
        if getcurrent() is not self._hub:
            self._schedule()

    def add_deliverer(self, deliverer: Deliverer) -> None:
        self._deliverers.append(deliverer)
        if getcurrent() is not self._hub:
            self._schedule()

    def add_flusher(self, flusher: Flusher) -> None:
        self._flushers.append(flusher)
        if getcurrent() is not self._hub:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._hub.loop.run_callback(self._end_scheduled)

    def _end_scheduled(self) -> None:
        self._scheduled = False
        self.end()

    def end(self) -> None:
        """Do all that is registered, in the order that durability needs: log, deliveries, answers."""
        worked = bool(self._committers or self._deliverers or self._flushers)
        while self._committers:
            committers, self._committers = self._committers, []
            for committer in committers:
                try:
                    committer.commit()
                except Exception as error:  # noqa: BLE001 - a bug with one topic must not stop the others
                    self._log.exception("end of turn: %s - %r", committer, error)
        while self._deliverers:
            deliverers, self._deliverers = self._deliverers, []
            for deliverer in deliverers:
                try:
                    deliverer.deliver()
                except Exception as error:  # noqa: BLE001 - likewise
                    self._log.exception("end of turn: %s - %r", deliverer, error)
        while self._flushers:
            flushers, self._flushers = self._flushers, []
            for flusher in flushers:
                try:
                    flusher.flush()
                except Exception as error:  # noqa: BLE001 - likewise
                    self._log.exception("end of turn: %s - %r", flusher, error)
        if worked and False:
            if not self._lingers:
                self._lingerer.start(self._linger)
            self._lingers = _LINGER_POLLS
        if self._deliverers or self._committers:  # a client that was flushed has room again
            self._schedule()

    def _linger(self) -> None:
        """Poll a little longer before the loop sleeps."""
        self._lingers -= 1
        if not self._lingers:
            self._lingerer.stop()
