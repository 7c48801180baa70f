"""A connection to nsqd on gevent: the socket, the greenlet and the timer around a `Session`.

The greenlet reads and calls the listener. Everything that is written in one iteration of the event loop is sent at
once by a callback of the loop, so that no writer waits for the socket.
"""

from __future__ import annotations

import os
from contextlib import suppress
from termios import FIONREAD, TIOCOUTQ
from time import monotonic
from typing import Any, Protocol

import gevent
from gevent import socket
from gevent.event import Event as Signal

from nsqd_py.client.addresses import parse_address
from nsqd_py.client.dialing import (
    LAST_READS,
    LINGER_S,
    SMALL_READ_BYTES,
    connect,
    count_bytes,
    new_session,
    next_read_bytes,
    shake_hands,
)
from nsqd_py.client.errors import ConnectionLost, NsqdSaid
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import Broken, Event, Negotiated
from nsqd_py.protocol.incoming import Messages, Responses

_READ = 1
_WRITE = 2
_LOOKS_PER_LIMIT = 4


class Log(Protocol):
    """A log for bugs in a listener; `nsqd_py.runtime.logs.Log` is one."""

    def exception(self, text: str, *args: object) -> None: ...


class Listener:
    """Receives the events of a connection. The connection's greenlet makes all calls and does not read meanwhile.

    `on_closed` is called last, and exactly once.
    """

    def on_messages(self, connection: Connection, messages: Messages) -> None:
        """Messages have arrived. Raises ConnectionLost to end the connection."""

    def on_response(self, connection: Connection, data: bytes) -> None:
        """The response `OK` or `CLOSE_WAIT` has arrived."""

    def on_oks(self, connection: Connection, count: int) -> None:
        """`count` consecutive responses `OK` have arrived."""
        for _ in range(count):
            self.on_response(connection, b"OK")

    def on_error(self, connection: Connection, error: NsqdSaid) -> None:
        """nsqd has answered with an error."""

    def on_closed(self, connection: Connection, reason: str) -> None:
        """The connection has ended."""


class Connection:
    """One connection, opened once.

    address          as `host:port`
    negotiated       the result of the handshake
    last_received_s  when data last came from nsqd, by the monotonic clock
    """

    def __init__(self, address: str, options: ClientOptions, listener: Any, log: Log) -> None:
        """`listener` has the methods of `Listener`. Raises BadAddress."""
        self._target = parse_address(address)
        self.address = str(self._target)
        self.negotiated = Negotiated()
        self.last_received_s = 0.0
        self._options = options
        self._listener = listener
        self._log = log
        self._session = new_session(socket, self._target, options)
        self._sock: Any = None
        self._pid = 0
        self._loop = gevent.get_hub().loop
        self._greenlet: gevent.Greenlet[..., None] | None = None
        self._reader: Any = None
        self._writer: Any = None
        self._timer: Any = None
        self._end_reason = "not opened"  # empty while it is open
        self._is_hung_up = False
        self._is_silent = False  # the owner has closed it: no more calls but `on_closed`
        self._queued_bytes = 0
        self._flush_is_due = False
        self._unsent: memoryview | None = None
        self._untaken_bytes = 0
        self._taken_s = 0.0
        self._has_room = Signal()

    # ---- its life

    def open(self) -> Negotiated:
        """Connect, and negotiate. Raises ConnectionFailed, HandshakeFailed, AuthFailed.

        The listener is not called before this returns, nor if it raises.
        """
        self._sock = connect(socket, self._target, self._options)
        try:
            self.negotiated, events = shake_hands(self._sock, self._session, self._options.read_timeout_s)
        except BaseException:
            self._sock.close()
            raise
        self._begin(events)
        return self.negotiated

    def _begin(self, events: list[Event]) -> None:
        self._pid = os.getpid()
        self._end_reason = ""
        self._sock.settimeout(0.0)
        self.last_received_s = monotonic()
        descriptor = self._sock.fileno()
        self._reader = self._loop.io(descriptor, _READ)
        self._writer = self._loop.io(descriptor, _WRITE)
        limits_s = [limit_s for limit_s in (self._options.read_limit_s, self._options.write_timeout_s) if limit_s]
        period_s = min(limits_s) / _LOOKS_PER_LIMIT
        self._timer = self._loop.timer(period_s, period_s)
        self._timer.start(self._look_for_silence)
        self._greenlet = gevent.spawn(self._run, events)

    @property
    def is_open(self) -> bool:
        return not self._end_reason

    @property
    def is_foreign(self) -> bool:
        """True in a child process of the one that opened it: only `abandon` may be called there."""
        return self._pid not in (0, os.getpid())

    def close(self, reason: str = "closed") -> None:
        """Close the connection. Idempotent. The listener gets no more calls but `on_closed`.

        That follows when nsqd has taken all output and closed its side too; after LINGER_S at the latest.
        """
        if not self.is_open:
            return
        self._end_reason = reason
        self._is_silent = True
        self._has_room.set()
        self._timer.stop()
        self._timer.close()
        self._timer = self._loop.timer(LINGER_S)
        self._timer.start(self._hang_up)
        last = self._session.end()
        self._hand_over(memoryview(last if self._unsent is None else bytes(self._unsent) + last))

    def _end(self, reason: str) -> None:
        """Wake the greenlet, which handles the data that has arrived, and then ends."""
        if self._end_reason:
            return
        self._end_reason = reason
        self._has_room.set()
        self._hang_up()

    def _hang_up(self) -> None:
        self._is_hung_up = True
        self._unsent = None
        self._writer.stop()
        with suppress(OSError):  # nsqd has closed it already
            self._sock.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Close the descriptor without sending anything: for a child process, after `gevent.reinit()`."""
        self._end_reason = self._end_reason or "abandoned"
        self._let_go()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until `on_closed` has returned."""
        if self._greenlet is not None:
            self._greenlet.join(timeout_s)

    def _let_go(self) -> None:
        for watcher in (self._reader, self._writer, self._timer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._reader = self._writer = self._timer = None
        self._unsent = None
        if self._sock is not None:
            self._sock.close()

    # ---- reading

    def _run(self, events: list[Event]) -> None:
        try:
            self._tell(events)
            self._read()
        except ConnectionLost as error:
            self._end(error.reason)
        except Exception as error:  # noqa: BLE001 - a bug in a listener ends only its own connection
            self._log.exception("%s: %r", self.address, error)
            self._end("internal error")
        finally:
            self._end("killed")  # has no effect if it has ended for another reason
            self._let_go()
            self._listener.on_closed(self, self._end_reason)

    def _read(self) -> None:
        hub = gevent.get_hub()
        size = SMALL_READ_BYTES
        left_reads = LAST_READS
        while left_reads:
            hub.wait(self._reader)
            try:
                data = self._sock.recv(size)
            except BlockingIOError:
                continue
            except OSError as error:
                self._end(f"failed to read - {error.strerror}")
                return
            if not data:
                self._end(self._session.ended().reason)
                return
            size = next_read_bytes(len(data))
            self.last_received_s = monotonic()
            if not self._is_silent:
                self._take(data)
            if self._is_hung_up:
                left_reads -= 1

    def _take(self, data: bytes) -> None:
        session = self._session
        self._tell(session.received(data))
        while session.has_more and not self._is_silent:
            gevent.sleep(0)  # let other greenlets run, and send the answers
            self._tell(session.received(b""))
        if session.has_output:
            self._want_flush()

    def _tell(self, events: list[Event]) -> None:
        listener = self._listener
        for event in events:
            if self._is_silent:
                return
            if isinstance(event, Messages):
                listener.on_messages(self, event)
            elif isinstance(event, Responses):
                if event.times == 1:
                    listener.on_response(self, event.data)
                else:
                    listener.on_oks(self, event.times)
            elif isinstance(event, NsqdSaid):
                listener.on_error(self, event)
            elif isinstance(event, Broken):
                with suppress(OSError):
                    self._sock.send(self._session.end())  # tells nsqd the reason of a TLS failure
                self._end(event.error.reason)

    # ---- writing

    def write(self, data: bytes) -> None:
        """Send it at the end of this loop iteration. Never blocks. If the connection has ended, the data is dropped."""
        if self._end_reason:
            return
        self._queued_bytes += len(data)
        self._session.send(data)
        if not self._flush_is_due:
            self._want_flush()

    @property
    def unsent_bytes(self) -> int:
        """Return the size of the output that the socket has not taken yet."""
        return self._queued_bytes + (len(self._unsent) if self._unsent is not None else 0)

    def drain(self, below_bytes: int) -> None:
        """Block this greenlet until less than `size_bytes` is unsent.

        Raises ConnectionLost if the connection has ended.
        """
        while True:
            if self._end_reason:
                raise ConnectionLost(self.address, self._end_reason)
            if self.unsent_bytes < below_bytes:
                return
            self._has_room.clear()
            self._has_room.wait()

    def _want_flush(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.run_callback(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._end_reason or self._unsent is not None:
            return
        self._queued_bytes = 0
        data = self._session.take_output()
        if data:
            self._hand_over(memoryview(data))
        self._has_room.set()

    def _hand_over(self, data: memoryview) -> None:
        try:
            sent = self._sock.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        except OSError as error:
            # Read first what nsqd sent before it closed the connection.
            self._end(f"failed to write - {error.strerror}")
            self._hang_up()  # even while closing
            return
        if sent == len(data):
            self._on_all_sent()
            return
        if self._unsent is None:
            self._taken_s = monotonic()
            self._writer.start(self._on_writable)
        self._unsent = data[sent:]

    def _on_all_sent(self) -> None:
        if self._unsent is not None:
            self._unsent = None
            self._writer.stop()
        if self._end_reason:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
        elif self._session.has_output:
            self._want_flush()

    def _on_writable(self) -> None:
        if self._unsent is not None:
            self._hand_over(self._unsent)
            self._has_room.set()

    # ---- silence

    def _look_for_silence(self) -> None:
        """Check the read and write limits. The loop calls this a few times within each."""
        if self._end_reason:
            return
        now_s = monotonic()
        limit_s = self._options.read_limit_s
        # If this thread was busy for this long, data may still wait to be read.
        if limit_s and now_s - self.last_received_s > limit_s and not count_bytes(self._sock, FIONREAD):
            self._end(f"nothing came for {limit_s:g}s, not even a heartbeat")
        elif self._unsent is not None:
            self._look_for_stuck_output(self._unsent, now_s)

    def _look_for_stuck_output(self, unsent: memoryview, now_s: float) -> None:
        # Count the bytes in the socket too: it reports room only after it has sent a third of a few MB.
        untaken_bytes = len(unsent) + count_bytes(self._sock, TIOCOUTQ)
        if untaken_bytes != self._untaken_bytes:
            self._untaken_bytes = untaken_bytes
            self._taken_s = now_s
        elif now_s - self._taken_s > self._options.write_timeout_s:
            self._end(f"nsqd took nothing for {self._options.write_timeout_s:g}s")
