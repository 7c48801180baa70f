"""What keeps a producer connected to one nsqd, in a greenlet of its own."""

from __future__ import annotations

from time import monotonic
from typing import Any, Protocol

import gevent
from gevent.event import Event

from nsqd_py.client.connection import Connection, Listener
from nsqd_py.client.errors import NsqClientError, NsqdSaid
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.publishing.outlet import Outlet

_OK = b"OK"


class Desk(Protocol):
    """Who is told about an nsqd: the producer."""

    def opened(self, outlet: Outlet) -> None: ...

    def not_opened(self, outlet: Outlet, error: NsqClientError) -> None: ...

    def answered_ok(self, outlet: Outlet, count: int) -> None: ...

    def answered_error(self, outlet: Outlet, error: NsqdSaid) -> None: ...

    def closed(self, outlet: Outlet, reason: str) -> None: ...


class OutletLink(Listener):
    """Connects, and again when that is lost, with the pauses of the outlet, until nobody wants it any more."""

    def __init__(self, outlet: Outlet, options: ClientOptions, desk: Desk, log: Any) -> None:
        self.outlet = outlet
        self._options = options
        self._desk = desk
        self._log = log
        self._has_ended = Event()
        self._greenlet = gevent.spawn(self._run)

    def close(self) -> None:
        """Returns when the connection is closed."""
        connection = self.outlet.connection
        self.outlet.is_wanted = False
        self._greenlet.kill()
        if connection is not None:
            connection.close()
            connection.join()

    def abandon(self) -> None:
        """In a forked child: the connection is the parent's."""
        self.outlet.is_wanted = False
        self._greenlet.kill(block=False)
        if self.outlet.connection is not None:
            self.outlet.connection.abandon()

    def _run(self) -> None:
        while self.outlet.is_wanted:
            gevent.sleep(self.outlet.pause.wait_s(monotonic()))
            connection = Connection(self.outlet.address, self._options, self, self._log)
            try:
                connection.open()
            except NsqClientError as error:
                self._log.warning("producer: %s", error)
                self._desk.not_opened(self.outlet, error)
                continue
            self._has_ended.clear()
            self.outlet.connection = connection
            self._desk.opened(self.outlet)
            self._has_ended.wait()

    # ---- as the listener of the connection

    def on_response(self, connection: Connection, data: bytes) -> None:
        if data == _OK:
            self._desk.answered_ok(self.outlet, 1)

    def on_oks(self, connection: Connection, count: int) -> None:
        self._desk.answered_ok(self.outlet, count)

    def on_error(self, connection: Connection, error: NsqdSaid) -> None:
        self._desk.answered_error(self.outlet, error)

    def on_closed(self, connection: Connection, reason: str) -> None:
        self.outlet.connection = None
        self._has_ended.set()
        self._desk.closed(self.outlet, reason)
