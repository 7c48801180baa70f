"""Links: greenlets that keep a consumer or a producer connected to one nsqd."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

import gevent
from gevent.event import Event

from nsqd_py.client.consuming.membership import Membership
from nsqd_py.client.errors import ConnectionLost, NsqClientError, NsqdSaid
from nsqd_py.client.gevent.connection import Connection, Listener
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.options import ClientLog, ClientOptions
from nsqd_py.client.publishing.dispatcher import MOST_LONELY_PAUSE_S
from nsqd_py.client.publishing.outlet import Outlet
from nsqd_py.protocol.incoming import Messages


class Owner(Protocol):
    """The consumer that a link serves."""

    def on_batch(self, batch: MessageBatch) -> None: ...
    def is_wanted(self, address: str) -> bool: ...
    def on_lost(self) -> None: ...


class Link(Listener):
    """Connects one nsqd of a consumer and subscribes, and repeats that after a loss, with growing delays.

    Its greenlet ends after `leave` once nothing is in flight, or when there is no connection and the nsqd is not used
    any more.
    """

    def __init__(self, membership: Membership, options: ClientOptions, log: ClientLog, owner: Owner) -> None:
        self.address = membership.address
        self._membership = membership
        self._options = options
        self._log = log
        self._owner = owner
        self._connection: Connection | None = None
        self._wakened = Event()
        self.greenlet = gevent.spawn(self._run)

    # ---- what others ask of it

    def write(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.write(data)
        if self._membership.is_leaving:
            self._wakened.set()

    def hurry(self) -> None:
        """Dial again at once: an nsqlookupd has just named the nsqd."""
        if self._connection is None:
            self._wakened.set()

    def leave(self) -> None:
        """Request no more messages, and end once all messages in flight are answered."""
        self._membership.leave()
        if self._connection is None:
            self.greenlet.kill(block=False)  # it is dialling, or waits to dial
        self._wakened.set()

    def cut(self) -> None:
        """End now. nsqd delivers what is in flight again."""
        self._membership.leave()
        self.greenlet.kill(block=False)
        if self._connection is not None:
            self._connection.close()

    # ---- its greenlet

    def _run(self) -> None:
        while True:
            self._connect_once()
            if self._membership.is_leaving or not self._owner.is_wanted(self.address):
                return
            self._wakened.wait(self._membership.redial_wait_s)
            self._wakened.clear()

    def _connect_once(self) -> None:
        """Connect, and return when the connection has ended or failed."""
        membership = self._membership
        membership.dials()
        connection = Connection(self.address, self._options, self, self._log)
        try:
            connection.open()
        except NsqClientError as error:
            membership.failed(error)
            return
        self._connection = connection
        connection.write(membership.subscribe)
        while connection.is_open and not (membership.is_leaving and membership.is_drained):
            self._wakened.wait()
            self._wakened.clear()
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        with suppress(ConnectionLost):
            connection.drain(1)  # the last answers
        connection.close()
        connection.join()

    # ---- what the connection tells

    def on_messages(self, connection: Connection, messages: Messages) -> None:
        batch = self._membership.came(messages)
        if batch is not None:
            self._owner.on_batch(batch)

    def on_response(self, connection: Connection, data: bytes) -> None:
        self._membership.answered(data, connection.negotiated)
        self._wakened.set()

    def on_error(self, connection: Connection, error: NsqdSaid) -> None:
        self._membership.refused(error)

    def on_closed(self, connection: Connection, reason: str) -> None:
        self._connection = None
        self._membership.lost(reason)
        if not self._membership.is_leaving:
            self._owner.on_lost()
        self._wakened.set()


_OK = b"OK"


class Desk(Protocol):
    """The producer that gets the events of an nsqd."""

    def opened(self, outlet: Outlet) -> None: ...

    def not_opened(self, outlet: Outlet, error: NsqClientError) -> None: ...

    def pause_s(self, outlet: Outlet) -> float: ...

    def answered_ok(self, outlet: Outlet, count: int) -> None: ...

    def answered_error(self, outlet: Outlet, error: NsqdSaid) -> None: ...

    def closed(self, outlet: Outlet, reason: str) -> None: ...


class OutletLink(Listener):
    """Connects one nsqd of a producer, and again after a loss or failure, with the pauses of its outlet."""

    def __init__(self, outlet: Outlet, options: ClientOptions, desk: Desk, log: Any) -> None:
        self.outlet = outlet
        self._options = options
        self._desk = desk
        self._log = log
        self._has_ended = Event()
        self._greenlet = gevent.spawn(self._run)

    def close(self) -> None:
        """Return when the connection is closed."""
        connection = self.outlet.connection
        self.outlet.is_wanted = False
        self._greenlet.kill()
        if connection is not None:
            connection.close()
            connection.join()

    def abandon(self) -> None:
        """In a forked child: leave the connection to the parent."""
        self.outlet.is_wanted = False
        self._greenlet.kill(block=False)
        if self.outlet.connection is not None:
            self.outlet.connection.abandon()

    def _run(self) -> None:
        while self.outlet.is_wanted:
            self._wait()
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

    def _wait(self) -> None:
        """Wait until the nsqd may be tried. The pause becomes shorter when the last other connection is lost."""
        while pause_s := self._desk.pause_s(self.outlet):
            gevent.sleep(min(pause_s, MOST_LONELY_PAUSE_S))

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
