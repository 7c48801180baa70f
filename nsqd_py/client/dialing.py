"""Opens a connection on any kind of socket, since gevent's and plain ones have the same methods."""

from __future__ import annotations

import sys
from fcntl import ioctl
from time import monotonic
from typing import Any

from nsqd_py.client.addresses import Address
from nsqd_py.client.errors import ConnectionFailed
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import Broken, Event, Negotiated, Ready, Session
from nsqd_py.net.addresses import host_and_port
from nsqd_py.net.layers import Layer

READ_BYTES = 256 * 1024
# The buffer of a read whose predecessor was small. What a read does not fill goes back to malloc in pieces: with the
# large one for each read, a consumer of 2000 messages a second grew by 0.4 MB each second, all of it free memory.
SMALL_READ_BYTES = 16 * 1024
LINGER_S = 1.0  # how long nsqd may take after a close to read the rest and close its side
_SHORTEST_WAIT_S = 0.001
_UNIX_SERVER_NAME = "localhost"  # the name that a certificate must have if there is no host


def next_read_bytes(received: int) -> int:
    """Return the size of the buffer for the read that follows one of `received` bytes."""
    return READ_BYTES if received >= SMALL_READ_BYTES else SMALL_READ_BYTES


def connect(socket: Any, address: Address, options: ClientOptions) -> Any:
    """Return a connected socket of the module `socket`. Raises ConnectionFailed."""
    limit_s = options.dial_timeout_s or None
    try:
        if address.path:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(limit_s)
            sock.connect(address.path)
            return sock
        sock = socket.create_connection((address.host, address.port), limit_s, _source(options.local_addr))
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


def new_session(socket: Any, address: Address, options: ClientOptions) -> Session:
    """Return a session with TLS for the host of this address."""

    def make_tls() -> Layer:
        from nsqd_py.client.tls import tls_layer  # imported only if TLS is negotiated: it is slow to import

        return tls_layer(options, address.host or _UNIX_SERVER_NAME)

    return Session(str(address), options, make_tls, socket.gethostname())


def shake_hands(sock: Any, session: Session, limit_s: float) -> tuple[Negotiated, list[Event]]:
    """Return what was negotiated, and the events behind it. Raises HandshakeFailed, AuthFailed."""
    deadline_s = monotonic() + limit_s
    session.start()
    try:
        while True:
            sock.settimeout(max(deadline_s - monotonic(), _SHORTEST_WAIT_S))
            sock.sendall(session.take_output())
            data = sock.recv(READ_BYTES)
            if not data:
                raise session.ended()
            events = session.received(data)
            while not events and session.has_more and monotonic() < deadline_s:
                events = session.received(b"")
            if not events and monotonic() >= deadline_s:  # nsqd sends heartbeats, or something compressed, without end
                raise TimeoutError
            if events:
                return _first(sock, session, events), events[1:]
    except TimeoutError as error:
        raise session.failed(f"no end of the handshake within {limit_s:g}s") from error
    except OSError as error:
        raise session.failed(f"the connection broke during the handshake: {_words(error)}") from error


def _first(sock: Any, session: Session, events: list[Event]) -> Negotiated:
    first = events[0]
    if isinstance(first, Ready):
        return first.negotiated
    assert isinstance(first, Broken)  # no other event comes before
    sock.sendall(session.take_output())  # TLS tells the peer the reason
    raise first.error


# Reads of a connection that is over: what nsqd sent before may hold its reason, but it may also send without end.
LAST_READS = 64


def count_bytes(sock: Any, request: int) -> int:
    """Return how many bytes wait in the socket to be read (FIONREAD), or to be taken by the peer (TIOCOUTQ)."""
    return int.from_bytes(ioctl(sock, request, bytes(4)), sys.byteorder)
