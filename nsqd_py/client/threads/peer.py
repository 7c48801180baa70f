"""One nsqd of a threaded consumer: a plain connection and its `Membership`."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from functools import partial
from time import monotonic

from nsqd_py.client.consuming.membership import Membership
from nsqd_py.client.errors import AtAddress, ConnectionLost, NsqClientError, NsqdSaid
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import Event
from nsqd_py.client.threads.aside import Aside, Waker
from nsqd_py.client.threads.connection import Connection, opened
from nsqd_py.protocol.incoming import Messages, Responses


class Peer:
    """Belongs to the I/O thread. It never waits but to send to a full socket; it dials beside the thread.

    The membership is shared with the threads that answer messages, so it is used only under `lock`.
    """

    def __init__(
        self, membership: Membership, options: ClientOptions, lock: AbstractContextManager[object], waker: Waker
    ) -> None:
        self.address = membership.address
        self.membership = membership
        self.connection: Connection | None = None
        self._opening: Aside[Connection] | None = None
        self._is_hurried = False
        self._options = options
        self._lock = lock
        self._waker = waker

    def keep_connected(self) -> None:
        """Dial when it is due, and take a connection that has opened."""
        if self._opening is not None:
            if self._opening.is_done:
                self._opened(self._opening)
                self._opening = None
        elif self._is_due:
            self._is_hurried = False
            self.membership.dials()
            call = partial(opened, self.address, self._options, self.membership.subscribe)
            self._opening = Aside(call, self._waker)

    @property
    def _is_due(self) -> bool:
        if self.connection is not None or self.membership.is_leaving:
            return False
        return self._is_hurried or self.membership.redial_wait_s <= 0

    def _opened(self, opening: Aside[Connection]) -> None:
        try:
            self.connection = opening.result()
        except NsqClientError as error:
            with self._lock:
                self.membership.failed(error)

    def hurry(self) -> None:
        """Dial again at once: an nsqlookupd has just named the nsqd."""
        self._is_hurried = True

    def flush(self) -> None:
        """Send the output of the lane."""
        lane, connection = self.membership.lane, self.connection
        if lane is not None and connection is not None and lane.has_output:
            with self._lock:
                output = lane.take_output()
            with suppress(ConnectionLost):  # `receive` raises it after the last events
                connection.send(output)

    def receive(self) -> list[MessageBatch]:
        """Return the batches that have arrived."""
        connection = self.connection
        if connection is None:
            return []
        try:
            events = connection.receive(0)
            with self._lock:
                batches = [self._take(connection, event) for event in events]
        except AtAddress as error:
            connection.fail(error.reason)  # no goodbye to an nsqd that floods this client
            self.close(error.reason)
            return []
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

    @property
    def is_over(self) -> bool:
        """True if it has left: nothing is connected, or all is answered and sent."""
        if self.connection is None:
            return self.membership.is_leaving
        return self.membership.is_leaving and self.membership.is_drained

    def abandon(self, reason: str) -> None:
        """In a forked child: close the descriptor, without sending anything. The lock may belong to a lost thread."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
        self.membership.lost(reason)

    def close(self, reason: str = "closed") -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
            with self._lock:
                self.membership.lost(reason)
