"""One configured address of an nsqlookupd, and the endpoints that its name stands for."""

from __future__ import annotations

from collections.abc import Callable

import gevent
from gevent.event import Event

from nsqd_py.lookup.endpoints import Address, Choice, Endpoint
from nsqd_py.lookup.resolver import Resolver
from nsqd_py.runtime.backoff import Backoff
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.outage_log import Trouble

RESOLVE_EVERY_S = 30.0
# When something failed, the name is looked up again, but not more often than this.
RESOLVE_AT_MOST_EVERY_S = 5.0
_FIRST_RETRY_S = 0.5


class LookupHost:
    """Keeps `choice` up to date, and calls `on_resolved` when the name was looked up.

    `was_resolved` tells whether that was done at least once, well or not.
    """

    def __init__(
        self,
        address: Address,
        resolver: Resolver,
        log: Log,
        clock: Callable[[], float],
        is_connected: Callable[[Endpoint], bool],
        on_resolved: Callable[[], None],
    ) -> None:
        self.address = address
        self.choice = Choice()
        self.was_resolved = False
        self._resolver = resolver
        self._clock = clock
        self._is_connected = is_connected
        self._on_resolved = on_resolved
        self._trouble = Trouble(log, clock)
        self._backoff = Backoff(_FIRST_RETRY_S, RESOLVE_AT_MOST_EVERY_S)
        self._is_wanted = Event()
        self._greenlet: gevent.Greenlet[..., None] | None = None

    def start(self) -> None:
        endpoint = self.address.endpoint
        if endpoint is None:
            self._greenlet = gevent.spawn(self._run)
        else:
            self._take([endpoint])

    def stop(self) -> None:
        if self._greenlet is not None:
            self._greenlet.kill(block=False)

    def resolve_soon(self) -> None:
        """Something behind this name failed: it may have moved."""
        self._is_wanted.set()

    def _run(self) -> None:
        while True:
            if self.resolve():
                gevent.sleep(RESOLVE_AT_MOST_EVERY_S)
                self._is_wanted.wait(RESOLVE_EVERY_S - RESOLVE_AT_MOST_EVERY_S)
            else:
                gevent.sleep(self._backoff.wait_s(self._clock()))
            self._is_wanted.clear()

    def resolve(self) -> bool:
        """Look the name up. When that fails, what was known stays."""
        address = self.address
        try:
            endpoints = self._resolver.resolve(address.host, address.port)
        except OSError as error:
            self._backoff.failed(self._clock())
            self._trouble.report("LOOKUP(%s): failed to resolve - %s", address.text, error.strerror or error)
            self._take(None)
            return False
        self._backoff.reset()
        self._trouble.end("LOOKUP(%s): resolved again", address.text)
        self._take(endpoints)
        return True

    def _take(self, endpoints: list[Endpoint] | None) -> None:
        if endpoints is not None:
            self.choice.resolved(endpoints, self._is_connected)
        self.was_resolved = True
        self._on_resolved()
