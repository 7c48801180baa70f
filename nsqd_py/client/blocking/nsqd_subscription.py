"""The subscription of a consumer at one nsqd, over all its connections, and the batches that come from there."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from time import monotonic

from nsqd_py.client.blocking.backend import WorkerThread
from nsqd_py.client.blocking.connection import ClientContext, Connection, opened
from nsqd_py.client.consuming.subscription import InFlightWindow, Subscription
from nsqd_py.client.errors import AtAddress, ConnectionLost, NsqClientError, NsqdSaid
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.session import Event
from nsqd_py.protocol import outgoing
from nsqd_py.protocol.incoming import IncomingMessages, Responses
from nsqd_py.runtime.logs.outages import Backoff, OutageLog

_FIRST_REDIAL_S = 0.1
_LASTED_S = 2.0  # a connection that lasted this long has not failed: redial soon
_CLOSE_WAIT = b"CLOSE_WAIT"
_SILENT_S = 2.0  # an nsqd that sends nothing for this long after CLS hangs


class NsqdSubscription:
    """Belongs to the I/O thread. It never waits but to send to a full socket; it dials in another thread.

    The window is shared with the threads that answer messages, so it is used only under its lock.

    window      set while the nsqd has our subscription
    is_leaving  True if no more messages are requested from it
    error       why the last connection failed, was refused, or was lost; None before, and while it has our subscription
    """

    def __init__(self, address: str, subscription: Subscription, context: ClientContext) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.window: InFlightWindow | None = None
        self.is_leaving = False
        self.error: NsqClientError | None = None
        self._said: NsqdSaid | None = None  # the error that nsqd answered over the connection of now
        self._subscription = subscription
        self._context = context
        self._options = context.options
        self._log = context.log
        self._opening: WorkerThread[Connection] | None = None
        self._dialled_s = 0.0
        self._redial = Backoff(
            _FIRST_REDIAL_S, max(_FIRST_REDIAL_S, self._options.lookupd_poll_interval_s), context.chance
        )
        self._outage = OutageLog(self._log, monotonic)
        self._dials_soon = False
        self._nsqd_is_done = False
        self._left_s = math.inf

    # ---- connecting

    @property
    def is_dialling(self) -> bool:
        return self._opening is not None

    def keep_connected(self, *, may_dial: bool) -> bool:
        """Dial when it is due, and take a connection that has opened. Return True if it began to dial."""
        if self._opening is not None:
            if self._opening.is_done:
                self._opened(self._opening)
                self._opening = None
            return False
        if self.connection is not None or not may_dial or self.is_leaving:
            return False
        if self._dials_soon or self._redial.wait_s(monotonic()) <= 0:
            self._dials_soon = False
            self._dialled_s = monotonic()
            backend = self._context.backend
            poller = self._context.poller
            waits = self._context.waits
            call = partial(
                opened, self.address, self._options, self._subscription.subscribe, backend, waits=waits
            )
            self._opening = WorkerThread(backend, poller, call, Connection.close)
        return self.is_dialling

    def _opened(self, opening: WorkerThread[Connection]) -> None:
        try:
            self.connection = opening.result()
            self._said = None
        except NsqClientError as error:
            self.error = error
            self._outage.report("%s; trying again", error)  # once a minute, since dialling repeats
            self._redial.failed(monotonic())

    def retry_soon(self) -> None:
        """Redial at once: an nsqlookupd has just named the nsqd."""
        self._dials_soon = True

    # ---- input and output

    def flush(self) -> None:
        """Send the output of the window, and what the socket did not take before."""
        window = self.window
        connection = self.connection
        if connection is not None and connection.has_unsent:
            connection.send_unsent()
        if window is not None and connection is not None and window.has_output:
            with self._subscription.lock:
                output = window.take_output()
            with suppress(ConnectionLost):  # `receive` raises it after the last events
                connection.send(output)

    def receive(self) -> list[MessageBatch]:
        """Return the batches that have arrived."""
        connection = self.connection
        if connection is None:
            return []
        try:
            events = connection.receive(0)
            with self._subscription.lock:
                batches = [self._take(connection, event) for event in events]
        except AtAddress as error:
            connection.fail(error.reason)  # no goodbye to an nsqd that floods this client
            self.close(error.reason)
            return []
        return [batch for batch in batches if batch is not None]

    def _take(self, connection: Connection, event: Event) -> MessageBatch | None:
        if isinstance(event, IncomingMessages):
            return self._received(event)
        if isinstance(event, Responses):
            if event.data == _CLOSE_WAIT:
                self._nsqd_is_done = True
            elif self.window is None and not self.is_leaving:
                self._subscribed(connection)
        elif isinstance(event, NsqdSaid):
            self._subscription.refused(event.code)
            if event.is_fatal:
                self._said = event
                self.error = event
                self._outage.report("%s", event)
            else:
                self._log.debug("%s", event)
        return None

    def _received(self, messages: IncomingMessages) -> MessageBatch | None:
        """Raises ConnectionLost for more messages than the client asked for: they would fill its memory."""
        window = self.window
        if window is None:
            return None
        if not window.expects(len(messages)):
            raise ConnectionLost(self.address, f"nsqd sent more messages than RDY {window.most_rdy} allows")
        return window.add(messages)

    def _subscribed(self, connection: Connection) -> None:
        self._outage.end("%s: connected again", self.address)
        self._log.info("%s: subscribed to %s", self.address, self._subscription)
        most = connection.negotiated.max_rdy_count
        requested = self._subscription.max_in_flight
        if most < requested:
            self._log.warning(
                "%s: gives %d messages at a time (--max-rdy-count), not %d", self.address, most, requested
            )
        self.window = self._subscription.opened(self.address, connection.negotiated)
        self.error = None

    @property
    def wants_to_receive(self) -> bool:
        """True if `receive` must be called even if the socket is not ready: events are here, or nsqd is silent."""
        connection = self.connection
        limit_s = self._options.read_limit_s
        if connection is None:
            return False
        if connection.has_events:
            return True
        return bool(limit_s and monotonic() - connection.last_received_s > limit_s)

    # ---- its end

    def leave(self) -> None:
        """Request no more messages. Those in flight must still be answered."""
        if not self.is_leaving and self.window is not None:
            self.window.say(outgoing.CLS)
            self._left_s = monotonic()
        self.is_leaving = True

    @property
    def is_over(self) -> bool:
        """True if it has left: no message comes any more, none is in flight, and all answers were taken to be sent."""
        window = self.window
        connection = self.connection
        if not self.is_leaving or window is None:
            return self.is_leaving
        if connection is not None and connection.has_unsent:
            return False
        return window.is_empty and not window.has_output and (self._nsqd_is_done or self._hangs)

    @property
    def _hangs(self) -> bool:
        """True if nsqd does not answer CLS. It redelivers what it may have sent."""
        connection = self.connection
        if connection is None or self._nsqd_is_done:
            return False
        return monotonic() - max(self._left_s, connection.last_received_s) > _SILENT_S

    def abandon(self) -> None:
        """In a forked child: close the descriptor, without sending or logging. Locks may belong to lost threads."""
        if self._opening is not None:
            self._opening.kill()
        if self.connection is not None:
            self.connection.close()
        if self.window is not None:
            self._subscription.closed(self.window)

    def close(self, reason: str = "closed") -> None:
        opening, self._opening = self._opening, None
        if opening is not None:  # nsqd would have a subscription of which no one knows
            opening.kill()
        hangs, connection, self.connection = self._hangs, self.connection, None
        if connection is not None:
            if hangs:
                connection.fail(reason)  # no goodbye, which waits for nsqd
            connection.close()
            with self._subscription.lock:
                self._lost(reason)

    def _lost(self, reason: str) -> None:
        window, self.window = self.window, None
        if window is not None:
            self._subscription.closed(window)
        if self.is_leaving:
            return
        self.error = self._said or ConnectionLost(self.address, reason)
        self._outage.report("%s: connection lost: %s", self.address, reason)
        if monotonic() - self._dialled_s > _LASTED_S:
            self._redial.reset()
        self._redial.failed(monotonic())
