"""A connection to nsqd on a blocking socket: only the caller's thread, or greenlet, waits.

Heartbeats are answered only during `send` and `receive`: a caller that does not call either for two heartbeat
intervals loses the connection. Only one thread at a time may use it.
"""

from __future__ import annotations

import math
import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from nsqd_py.client.addresses import Address, parse_address
from nsqd_py.client.blocking.backend import THREADS, Backend
from nsqd_py.client.errors import AtAddress, ConnectionFailed, ConnectionLost
from nsqd_py.client.options import TLS_VERSIONS, ClientOptions
from nsqd_py.client.session import Broken, ClientSession, Event, Negotiated
from nsqd_py.net.addresses import host_and_port
from nsqd_py.net.layers import Layer
from nsqd_py.net.socket_buffers import untaken_bytes
from nsqd_py.net.tls_context import client_context
from nsqd_py.runtime.logs.lines import LineWriter

_READ_BYTES = 256 * 1024
# The buffer of a read whose predecessor was small. What a read does not fill goes back to malloc in pieces: with the
# large one for each read, a consumer of 2000 messages a second grew by 0.4 MB each second, all of it free memory.
_SMALL_READ_BYTES = 16 * 1024
_MOST_EVENT_BYTES = 32 << 20  # read while output waits for room
_LATE_S = 0.02  # how much longer `receive` may take while data comes that makes no event, such as heartbeats
_LINGER_S = 1.0  # how long nsqd may take after a close to read the rest and close its side
_SHORTEST_WAIT_S = 0.001
_UNIX_SERVER_NAME = "localhost"  # the name that a certificate must have if there is no host

# Reads of a connection that is over: what nsqd sent before may hold its reason, but it may also send without end.
_LAST_READS = 64


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The objects that the parts of one client share.

    chance  returns a number from 0 to 1
    poller  is woken when a part has something to do
    waits   False in an event loop: connections do not wait for room in a socket
    """

    options: ClientOptions
    log: LineWriter
    chance: Callable[[], float]
    backend: Backend
    poller: Any
    waits: bool = True


def _connect(backend: Backend, address: Address, options: ClientOptions) -> Any:
    """Return a connected socket of the backend. Raises ConnectionFailed."""
    limit_s = options.dial_timeout_s or None
    try:
        if address.path:
            sock = backend.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(limit_s)
            sock.connect(address.path)
            return sock
        sock = backend.create_connection((address.host, address.port), limit_s, _source(options.local_addr))
    except TimeoutError as error:
        raise ConnectionFailed(str(address), f"no connection within {options.dial_timeout_s:g}s") from error
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        raise ConnectionFailed(str(address), f"cannot connect: {_words(error)}") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def _source(local_addr: str) -> tuple[str, int] | None:
    if not local_addr:
        return None
    host, port = host_and_port(local_addr)
    return host, int(port or "0")


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def tls_context(options: ClientOptions, context_class: Any) -> Any:
    """Return a context of this class with the files, which are reread. Raises OSError if they cannot be used."""
    context = client_context(
        context_class,
        root_ca_file=options.tls_root_ca_file,
        cert_file=options.tls_cert,
        key_file=options.tls_key,
        level=options.tls_security_level,
        verifies=not options.tls_insecure_skip_verify,
    )
    if options.tls_min_version:
        context.minimum_version = max(TLS_VERSIONS[options.tls_min_version], TLS_VERSIONS["tls1.0"])
    return context


def _new_session(address: Address, options: ClientOptions) -> ClientSession:
    """Return a session with TLS for the host of this address."""

    def make_tls() -> Layer:
        import ssl  # imported only if TLS is negotiated: it takes 20 ms

        from nsqd_py.net.tls import TlsLayer

        return TlsLayer(
            options.tls_config or tls_context(options, ssl.SSLContext), address.host or _UNIX_SERVER_NAME
        )

    return ClientSession(str(address), options, make_tls, socket.gethostname())


def _shake_hands(sock: Any, session: ClientSession, limit_s: float) -> tuple[Negotiated, list[Event]]:
    """Return what was negotiated, and the events behind it. Raises HandshakeFailed, AuthFailed."""
    deadline_s = monotonic() + limit_s
    session.start()
    try:
        while True:
            sock.settimeout(max(deadline_s - monotonic(), _SHORTEST_WAIT_S))
            sock.sendall(session.take_output())
            data = sock.recv(_READ_BYTES)
            if not data:
                raise session.ended()
            events = session.received(data)
            while not events and session.has_more and monotonic() < deadline_s:
                events = session.received(b"")
            # nsqd sends heartbeats, or something compressed, without end.
            if not events and monotonic() >= deadline_s:
                raise TimeoutError
            if events:
                first = events[0]
                if isinstance(first, Broken):
                    sock.sendall(session.take_output())  # TLS sends the peer the reason
                    raise first.error
                assert isinstance(first, Negotiated)  # no other event comes before
                return first, events[1:]
    except TimeoutError as error:
        raise session.failed(f"no end of the handshake within {limit_s:g}s") from error
    except OSError as error:
        raise session.failed(f"the connection broke during the handshake: {_words(error)}") from error


class Connection:
    """One connection, opened once.

    address          as `host:port`
    negotiated       the result of the handshake
    last_received_s  when data last came from nsqd, by the monotonic clock
    sock             the socket, for those who wait for input
    waits            False in an event loop: `send` keeps what the socket does not take, and `close` waits for nothing
    """

    def __init__(self, address: str, options: ClientOptions, backend: Backend = THREADS) -> None:
        """Raises BadAddress."""
        self._target = parse_address(address)
        self.address = str(self._target)
        self.negotiated = Negotiated()
        self.last_received_s = 0.0
        self._options = options
        self._backend = backend
        self._session = _new_session(self._target, options)
        self.sock: Any = None
        self._pid = 0
        self._read_bytes = _SMALL_READ_BYTES
        self.waits = True
        self._unsent = memoryview(b"")
        self._is_flushing = False
        self._untaken_bytes = -1
        self._event_bytes = 0  # of events, about
        self._taken_s = 0.0
        self._events: list[Event] = []  # they came while the connection waited for something else
        self._failure: AtAddress | None = ConnectionLost(self.address, "not opened")

    # ---- its life

    def open(self) -> Negotiated:
        """Connect, and negotiate within read_timeout. Raises ConnectionFailed, HandshakeFailed, AuthFailed."""
        self.sock = _connect(self._backend, self._target, self._options)
        try:
            self.negotiated, events = _shake_hands(self.sock, self._session, self._options.read_timeout_s)
        except BaseException:
            self.sock.close()
            raise
        self.sock.settimeout(0.0)
        self._pid = os.getpid()
        self._failure = None
        self.last_received_s = monotonic()
        self._keep(events)
        return self.negotiated

    @property
    def is_open(self) -> bool:
        return self._failure is None

    def fileno(self) -> int:
        """Return the descriptor for `select`; check `has_events` too."""
        descriptor: int = self.sock.fileno()
        return descriptor

    def close(self) -> None:
        """Close the connection. Idempotent. Returns when nsqd has closed its side too, or after _LINGER_S.

        In a child of the process that opened it, this does not affect the parent's connection.
        """
        if self.is_open and self.waits and self._pid == os.getpid():
            with suppress(OSError):  # TimeoutError is an OSError
                self._say_goodbye(monotonic() + _LINGER_S)
        self._failure = self._failure or ConnectionLost(self.address, "closed")
        if self.sock is not None:
            self.sock.close()

    def _say_goodbye(self, deadline_s: float) -> None:
        sock = self.sock
        sock.settimeout(_LINGER_S)
        sock.sendall(bytes(self._unsent) + self._session.end())
        sock.shutdown(socket.SHUT_WR)
        while (left_s := deadline_s - monotonic()) > 0:
            sock.settimeout(left_s)
            if not sock.recv(_READ_BYTES):
                break

    # ---- reading

    @property
    def has_events(self) -> bool:
        """True if `receive` would return events at once, without reading from the socket."""
        if self._events:
            return True
        return self._failure is not None or self._session.has_more

    def receive(self, timeout_s: float | None = None) -> list[Event]:
        """Return events as soon as there are any; none after `timeout_s`. None waits without limit.

        Raises ConnectionLost once the connection has ended and all earlier events were returned.
        """
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        if timeout_s == 0 and not self.has_events:
            self._read()  # the caller has polled
        late_s = math.inf if deadline_s is None else deadline_s + _LATE_S
        while not self._events and monotonic() < late_s:
            if self._failure is not None:
                raise self._failure
            if self._session.has_more:
                self._take(b"")
            elif self._is_readable(deadline_s):
                self._read()
            elif deadline_s is not None and monotonic() >= deadline_s:
                break
        events, self._events = self._events, []
        return events

    def _is_readable(self, deadline_s: float | None) -> bool:
        """Wait for data until the deadline. Fail if nsqd has been silent for too long."""
        now_s = monotonic()
        limit_s = self._options.read_limit_s
        silence_ends_s = self.last_received_s + limit_s if limit_s else None
        ends_s = [end_s for end_s in (deadline_s, silence_ends_s) if end_s is not None]
        if self._poll(select.POLLIN, max(min(ends_s) - now_s, 0.0) if ends_s else None):
            return True
        if silence_ends_s is not None and monotonic() >= silence_ends_s:
            self.fail(f"nothing came for {limit_s:g}s, not even a heartbeat")
        return False

    def _poll(self, mask: int, timeout_s: float | None) -> int:
        poll = self._backend.select.poll()
        poll.register(self.sock, mask)
        ready = poll.poll(None if timeout_s is None else timeout_s * 1000)
        return ready[0][1] if ready else 0

    def _read(self) -> None:
        try:
            data = self.sock.recv(self._read_bytes)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(f"failed to read - {error.strerror}")
            return
        if not data:
            self.fail(self._session.ended().reason)
            return
        self._read_bytes = _READ_BYTES if len(data) >= _SMALL_READ_BYTES else _SMALL_READ_BYTES
        self.last_received_s = monotonic()
        self._take(data)

    def _take(self, data: bytes) -> None:
        self._keep(self._session.received(data))
        if self._session.has_output and not self._is_flushing:
            self._flush()

    def _keep(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Broken):
                self._failure = event.error
            else:
                self._events.append(event)

    def fail(self, reason: str) -> None:
        """End the connection. `receive` raises the reason after the last events."""
        if self._failure is None:
            self._failure = ConnectionLost(self.address, reason)

    # ---- writing

    def send(self, data: bytes, *, waits: bool = True) -> None:
        """Return when the socket has taken all of it, or what it takes now. Events wait for `receive`.

        Raises ConnectionLost. Even then, `receive` may return what nsqd sent before it closed the connection.
        """
        if self._failure is not None:
            raise self._failure
        self._session.send(data)
        self._flush(waits)
        if self._failure is not None:
            raise self._failure

    @property
    def has_unsent(self) -> bool:
        """True if `send_unsent` must be called once the socket has room."""
        return bool(self._unsent) and self._failure is None

    def send_unsent(self) -> None:
        """Send what the socket did not take before, as far as it takes it now."""
        self._flush()

    def _flush(self, waits: bool = True) -> None:
        self._untaken_bytes = -1
        self._event_bytes = 0
        self._is_flushing = True  # reading may add to the output, which must be sent after `data`
        while (self._unsent or self._session.has_output) and self._failure is None:
            self._unsent = self._unsent or memoryview(self._session.take_output())
            if self._unsent and not self._send_some():
                if not (waits and self.waits):
                    break
                self._wait_for_room()
        self._is_flushing = False

    def _send_some(self) -> bool:
        """Return False if the socket has no room."""
        try:
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except BlockingIOError:
            return False
        except OSError as error:
            self._fail_after_reading(f"failed to write - {error.strerror}")
        return True

    def _wait_for_room(self) -> None:
        """Wait until the socket takes more.

        Read in the meantime, since nsqd may be blocked until its output is read.
        """
        limit_s = self._options.write_timeout_s
        untaken = untaken_bytes(self.sock)
        if untaken != self._untaken_bytes:
            self._untaken_bytes = untaken
            self._taken_s = monotonic()
        left_s = self._taken_s + limit_s - monotonic()
        if self._event_bytes > _MOST_EVENT_BYTES:
            mask = select.POLLOUT
        else:
            mask = select.POLLIN | select.POLLOUT
        if left_s <= 0:
            self.fail(f"nsqd took nothing for {limit_s:g}s")
        elif self._poll(mask, left_s) & select.POLLIN:
            self._read()
            self._event_bytes += self._read_bytes

    def _fail_after_reading(self, reason: str) -> None:
        """Read the last data, which may hold nsqd's reason, then fail."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        for _ in range(_LAST_READS):
            if self._failure is None:
                self._read()
        self.fail(reason)


def opened(
    address: str,
    options: ClientOptions,
    first: bytes = b"",
    backend: Backend = THREADS,
    *,
    waits: bool = True,
) -> Connection:
    """Return an open connection over which `first` was sent. Raises as `Connection.open` and `send`."""
    connection = Connection(address, options, backend)
    try:
        connection.open()
        if first:
            connection.send(first)
    except BaseException:
        connection.close()
        raise
    connection.waits = waits
    return connection
