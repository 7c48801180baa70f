"""gevent's WSGI server behind the listener, limits and TLS of the other daemons."""

from __future__ import annotations

import errno
import re
import socket as standard_socket
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException, LineTooLong
from typing import Any

import gevent
from gevent import socket, ssl
from gevent.pywsgi import Input, WSGIHandler, WSGIServer

from nsqd_py.errors import StartError
from nsqd_py.net.addresses import host_of, split_address
from nsqd_py.net.http.client import yielding_reader
from nsqd_py.net.limits import BODY, HEAD, Connections, TimeLimits
from nsqd_py.net.listeners import Listener
from nsqd_py.net.tls_context import server_context, set_lowest_version
from nsqd_py.net.tls_options import DEFAULT_TLS_VERSION
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.pacing import Turns

# A connection without progress for this long is closed: idle, dribbling, or not reading.
SOCKET_TIMEOUT_S = 60.0
# For the TLS handshake.
HANDSHAKE_S = 10.0
# From waiting for a request to the end of its head.
HEAD_S = 120.0
# From there to the end of its body, whether it is read or skipped.
BODY_S = 60.0
_MOST_HEAD_BYTES = 64 * 1024
_STOP_S = 0.5
# Characters of method and path by which requests of an address take turns.
_MOST_KIND = 100
_FAREWELL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
# A valid line of the headers, or the empty one. Python takes `1_0` for a number.
_FIELD = re.compile(
    rb"(?i)(?:(?P<body>(?:content-length:[ \t]*[0-9]+|transfer-encoding:[ \t]*chunked)[ \t]*)"
    rb"|(?P<host>host:[^\0\r\n]*)"
    rb"|(?!content-length:|transfer-encoding:)[a-z0-9!#$%&'*+.^_`|~-]+:[^\0\r\n]*)?\r?\n"
)

WsgiApp = Callable[..., Any]


class ServedConnection:
    """One connection, for the table of connections."""

    def __init__(self, peer: str, loop: Any) -> None:
        self.peer = peer
        self.owner: Any = None
        self.greenlet: gevent.Greenlet[..., None] | None = None
        self._loop = loop
        self._waits_since_s: float | None = loop.now()
        self._body: Input | None = None
        self._body_since_s = 0.0

    def awaits_request(self) -> None:
        self._waits_since_s = self._loop.now()
        self._body = None

    def has_request(self) -> None:
        self._waits_since_s = None

    def awaits_body(self, body: Input | None) -> None:
        self._body = body
        self._body_since_s = self._loop.now()

    @property
    def is_idle(self) -> bool:
        return self._waits_since_s is not None

    def overdue(self, now_s: float, limits: TimeLimits) -> str:
        if self._waits_since_s is not None:
            if now_s - self._waits_since_s > limits.head_s:
                return HEAD
            return ""
        if self._body is None or now_s - self._body_since_s <= BODY_S:
            return ""
        return BODY if _is_unfinished(self._body) else ""

    def end(self, reason: str = "") -> None:
        if self.greenlet is not None:
            self.greenlet.kill(block=False)

    time_out = end
    close = end
    abort = end


def _is_unfinished(body: Input) -> bool:
    """True if a part of a body has not arrived. A chunk of length 0 ends a chunked body."""
    if body.chunked_input:
        return bool(body.chunk_length != 0)
    return bool(body.position < (body.content_length or 0))


class _HeadLines:
    """The lines of the headers of one request.

    Raises LineTooLong if they are too many, or proxies may read them otherwise.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left_bytes = _MOST_HEAD_BYTES
        self._kinds: set[str] = set()

    def readline(self, size: int) -> bytes:
        line: bytes = self._file.readline(size)
        self._left_bytes -= len(line)
        field = _FIELD.fullmatch(line)
        if field is None or self._left_bytes < 0 or field.lastgroup in self._kinds:
            raise LineTooLong("head")
        if field.lastgroup:
            self._kinds.add(field.lastgroup)
        return line


class _Handler(WSGIHandler):
    """Notifies its connection when it waits.

    A client that disconnects or reads nothing causes no error message.
    """

    connection: ServedConnection
    turns: Turns
    ignored_socket_errors: Any = (
        *WSGIHandler.ignored_socket_errors,
        errno.ETIMEDOUT,
        "timed out",
        ssl.SSL_ERROR_EOF,
    )

    def read_requestline(self) -> Any:
        self.connection.awaits_request()
        return super().read_requestline()

    def read_request(self, raw_requestline: Any) -> Any:
        self.turns.wait(host_of(self.connection.peer), raw_requestline.partition("?")[0][:_MOST_KIND])
        try:
            return super().read_request(raw_requestline)
        except (
            HTTPException,
            IndexError,
        ) as error:  # too many headers, or `HTTP/1`: gevent would print a traceback
            raise ValueError from error
        finally:
            self.connection.has_request()

    def MessageClass(self, *args: Any) -> Any:
        lines: Any = _HeadLines(self.rfile)
        headers = super().MessageClass(lines)
        if self.request_version != "HTTP/1.0" and (
            "Host" not in headers or self.request_version != "HTTP/1.1"
        ):
            raise ValueError(f"{self.request_version} without a Host, or of another version")
        return headers

    def _connection_upgrade_requested(self) -> bool:
        return False  # there is no other protocol: else the body would be read to the end of the connection

    def finalize_headers(self) -> None:
        super().finalize_headers()
        if self.close_connection and self.request_version != "HTTP/1.0":  # there, gevent says it
            headers: Any = self.response_headers
            headers.append((b"Connection", b"close"))

    def get_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environ()
        self.connection.awaits_body(self.wsgi_input)
        return environ


class HttpServer:
    """Serves `app` from `start` to `close`. Raises StartError if it cannot listen."""

    def __init__(
        self, app: WsgiApp, address: str, most: int, tls: ssl.SSLContext | None, log: Log, turns: Turns
    ) -> None:
        """`turns` spreads requests that arrive together over iterations of the event loop."""
        self._log = log
        self._turns = turns
        self._tls = tls
        self._loop = gevent.get_hub().loop
        self._served: dict[ServedConnection, None] = {}
        self._connections = Connections(most, 0, TimeLimits(head_s=HEAD_S), log, self._loop)
        self._listener = Listener(
            "HTTP", address, self._loop, log, self._on_connection, self._connections, lambda: _FAREWELL
        )
        host = split_address(self._listener.address)
        environ: dict[str, Any] = {
            "SERVER_NAME": host[0] if host else "localhost",
            "SERVER_PORT": str(host[1] if host else 0),
            "wsgi.url_scheme": "https" if tls is not None else "http",
        }
        # gevent's server never listens itself: our listener passes connections to it.
        self._wsgi = WSGIServer(("127.0.0.1", 0), app, log=None, error_log=None, environ=environ)

    @property
    def address(self) -> str:
        return self._listener.address

    def start(self) -> None:
        self._connections.start()
        self._listener.start()

    def close(self) -> None:
        """Accept no new connections. Idle ones end now, others after their answer, or after half a second."""
        self._connections.close()
        self._listener.close()
        for connection in list(self._served):
            if connection.is_idle:
                connection.end()
        busy = [connection.greenlet for connection in self._served if connection.greenlet is not None]
        gevent.joinall(busy, timeout=_STOP_S)
        gevent.killall(busy, timeout=_STOP_S)

    def _on_connection(self, sock: standard_socket.socket, peer: str) -> None:
        connection = ServedConnection(peer, self._loop)
        self._served[connection] = None
        self._connections.add(connection)
        connection.greenlet = gevent.spawn(self._serve, sock, connection)
        connection.greenlet.link(lambda _: self._forget(connection))

    def _forget(self, connection: ServedConnection) -> None:
        self._served.pop(connection, None)
        self._connections.remove(connection)

    def _serve(self, accepted: standard_socket.socket, connection: ServedConnection) -> None:
        address = accepted.getpeername()
        sock: Any = socket.socket(accepted.family, accepted.type, fileno=accepted.detach())
        sock.settimeout(SOCKET_TIMEOUT_S)
        try:
            if isinstance(address, tuple):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                self._turns.wait(host_of(connection.peer), "TLS")
                with gevent.Timeout(HANDSHAKE_S, TimeoutError(f"no TLS handshake within {HANDSHAKE_S:g}s")):
                    sock = self._tls.wrap_socket(sock, server_side=True)
            handler = _Handler(sock, address, self._wsgi, yielding_reader(sock))  # type: ignore[call-arg]
            handler.connection = connection
            handler.turns = self._turns
            handler.handle()
        except OSError as error:  # before or between requests: the client has gone, or does not speak TLS
            self._log.of_clients.debug("HTTP: client(%s) - %s", connection.peer, error)
        finally:
            with suppress(OSError):
                sock.close()


def server_tls(cert_file: str, key_file: str, level: int) -> ssl.SSLContext | None:
    """Return the TLS settings; None without a certificate. Raises StartError."""
    if not cert_file:
        return None
    try:
        context: ssl.SSLContext = server_context(cert_file, key_file, level, context_class=ssl.SSLContext)
    except OSError as error:
        raise StartError(str(error)) from error
    set_lowest_version(context, level, DEFAULT_TLS_VERSION)
    return context
