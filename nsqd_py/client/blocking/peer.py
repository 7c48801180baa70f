"""One nsqd of a blocking consumer: a plain connection and its `Membership`."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic

from nsqd_py.client.blocking.connection import Connection
from nsqd_py.client.consuming.membership import Membership
from nsqd_py.client.errors import AtAddress, ConnectionLost, NsqClientError, NsqdSaid
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import Event
from nsqd_py.protocol.incoming import Messages, Responses

_HANDSHAKE_LIMIT_S = 5.0  # the thread's other connections wait meanwhile


class Peer:
    """Connects on request. Only dialling, and sending to a full socket, block."""

    def __init__(self, membership: Membership, options: ClientOptions) -> None:
        self.address = membership.address
        self.membership = membership
        self.connection: Connection | None = None
        self._is_hurried = False
        self._options = options

    def dial(self) -> None:
        """Connect.

        Waits up to dial_timeout, and a little longer for an nsqd that accepts the connection and says nothing.
        """
        self._is_hurried = False
        self.membership.dials()
        connection = Connection(self.address, self._options)
        try:
            connection.open(max(_HANDSHAKE_LIMIT_S, self._options.dial_timeout_s))
            connection.send(self.membership.subscribe)
        except NsqClientError as error:
            connection.close()
            self.membership.failed(error)
        else:
            self.connection = connection

    @property
    def is_due(self) -> bool:
        """True if it must be dialled now."""
        if self.connection is not None or self.membership.is_leaving:
            return False
        return self._is_hurried or self.membership.redial_wait_s <= 0

    def hurry(self) -> None:
        """Dial again at once: an nsqlookupd has just named the nsqd."""
        self._is_hurried = True

    def flush(self) -> None:
        """Send the output of the lane."""
        lane, connection = self.membership.lane, self.connection
        if lane is not None and connection is not None and lane.has_output:
            with suppress(ConnectionLost):  # `receive` raises it after the last events
                connection.send(lane.take_output())

    def receive(self) -> list[MessageBatch]:
        """Return the batches that have arrived."""
        connection = self.connection
        if connection is None:
            return []
        try:
            events = connection.receive(0)
        except AtAddress as error:
            self.close(error.reason)
            return []
        batches = [self._take(connection, event) for event in events]
        return [batch for batch in batches if batch is not None]

    def _take(self, connection: Connection, event: Event) -> MessageBatch | None:
        if isinstance(event, Messages):
            return self.membership.came(event)
        if isinstance(event, Responses):
            self.membership.answered(event.data, connection.negotiated)
        elif isinstance(event, NsqdSaid):
            self.membership.refused(event)
        return None

    @property
    def wants_look(self) -> bool:
        """True if `receive` must be called even if the socket is not ready: events are here, or nsqd is silent."""
        connection, limit_s = self.connection, self._options.read_limit_s
        if connection is None:
            return False
        return connection.has_events or bool(limit_s and monotonic() - connection.last_received_s > limit_s)

    def close(self, reason: str = "closed") -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
            self.membership.lost(reason)
