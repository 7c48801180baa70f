"""One nsqd of a consumer, kept connected while it is wanted: a greenlet around a `Membership`."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

import gevent
from gevent.event import Event

from nsqd_py.client.connection import Connection, Listener
from nsqd_py.client.consuming.log import ClientLog
from nsqd_py.client.consuming.membership import Membership
from nsqd_py.client.errors import ConnectionLost, NsqClientError, NsqdSaid
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.incoming import Messages


class Owner(Protocol):
    """Whom a link serves."""

    def on_batch(self, batch: MessageBatch) -> None: ...
    def is_wanted(self, address: str) -> bool: ...
    def on_lost(self) -> None: ...


class Link(Listener):
    """Connects, subscribes, and does so again after a loss, later with each failure.

    Its greenlet ends when `leave` was called and nothing is in flight, or when it has no connection and is not
    wanted any more.
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
        """The nsqd has been seen alive: do not wait any longer."""
        if self._connection is None:
            self._wakened.set()

    def leave(self) -> None:
        """Ask for nothing more, and end once all that is in flight is answered."""
        self._membership.leave()
        if self._connection is None:
            self.greenlet.kill(block=False)  # it dials, or waits to
        self._wakened.set()

    def cut(self) -> None:
        """End now, whatever is in flight: nsqd hands it out again."""
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
        """Returns when there is no connection, or none any more."""
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
