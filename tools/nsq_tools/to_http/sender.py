"""Sending requests over persistent connections, with time-outs and redirects."""

from __future__ import annotations

import select
from contextlib import suppress
from time import monotonic
from typing import Any

import gevent
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from nsq_tools.to_http.requests import HttpRequest, Server
from nsqd_py.net.http.client import HttpClient, connect_any, resolve_by_hub

_READ_BYTES = 64 * 1024
# Bodies are discarded; closing the connection is cheaper than reading a longer response.
MAX_RESPONSE_BYTES = 256 * 1024
# As in Go's client. A router in between may drop a connection that is idle for longer.
IDLE_LIMIT_S = 90.0
MAX_REDIRECTS = 10


class NotDelivered(Exception):
    """The server did not take the message; the text is the reason. `is_answer` is True after a complete response."""

    def __init__(self, text: str, *, is_answer: bool) -> None:
        super().__init__(text)
        self.is_answer = is_answer


class _ServerConnection:
    """A connection to a server. It carries one request at a time. Its parser calls the methods `on_...`.

    status, location  of the last response
    is_reusable       True if the response was complete and the server keeps the connection open
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._arrived = select.poll()
        self._arrived.register(sock, select.POLLIN)
        self._parser = HttpResponseParser(self)
        self.idle_since_s = 0.0

    def exchange(self, request: bytes, late: gevent.Timeout) -> None:
        """Send a request and read the response. Raises OSError; and `late`, unless a status is there that is no redirect."""
        try:
            self._exchange(request)
        except gevent.Timeout as timeout:
            # Only the rest of the body is late, which does not matter. A redirect needs more time.
            if timeout is not late or not self.status or 300 <= self.status < 400:
                raise

    def _exchange(self, request: bytes) -> None:
        self.status = 0
        self.location = ""
        self.is_reusable = False
        self._is_complete = False
        response_bytes = 0
        with suppress(OSError):  # the server may have answered before it had read the whole request
            self._sock.sendall(request)
        while not self._is_complete:
            data = self._sock.recv(_READ_BYTES)
            response_bytes += len(data)
            if data and response_bytes <= MAX_RESPONSE_BYTES and self._feed(data):
                continue
            if self.status:  # the rest of the body does not matter
                return
            if not data:
                raise ConnectionResetError("the server closed the connection without a response")
            raise OSError("the response is not HTTP, or its head is too long")

    def _feed(self, data: bytes) -> bool:
        """Return False if this cannot be parsed."""
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._is_complete = False
            self.is_reusable = False
            return False
        return True

    def is_usable(self) -> bool:
        """True if the connection was not idle for too long, and the server has neither closed it nor sent anything."""
        if monotonic() - self.idle_since_s >= IDLE_LIMIT_S:
            return False
        return not self._arrived.poll(0)

    def close(self) -> None:
        with suppress(OSError):
            self._sock.close()

    # --- called by the parser

    def on_message_begin(self) -> None:
        self.is_reusable = False  # also if it is a second response to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 8 and name.lower() == b"location" and not self._is_complete:
            self.location = value.decode("utf-8", "replace")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        # Other 1xx responses precede the final one.
        if not self._is_complete and (status >= 200 or status == 101):
            self.status = status

    def on_message_complete(self) -> None:
        if self.status and not self._is_complete:
            self._is_complete = True
            self.is_reusable = self._parser.should_keep_alive()


class HttpSender:
    """Sends messages from many greenlets at the same time, each over a connection of a shared pool."""

    def __init__(self, client: HttpClient) -> None:
        """`client` has the time-outs and the TLS context."""
        self._client = client
        self._idle: dict[Server, list[_ServerConnection]] = {}

    def send(self, request: HttpRequest, message: bytes) -> None:
        """Send a message and wait for a 2xx response. Raises NotDelivered."""
        limit_s = self._client.request_timeout_s
        late = gevent.Timeout(limit_s)
        late.start()
        try:
            status = self._ask(request, message, late)
        except gevent.Timeout as timeout:
            if timeout is not late:
                raise
            raise NotDelivered(f"{request.name}: no answer within {limit_s:g}s", is_answer=False) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NotDelivered(f"{request.name}: {reason}", is_answer=False) from error
        finally:
            late.close()
        if not 200 <= status < 300:
            raise NotDelivered(f"{request.name}: got status code {status}", is_answer=True)

    def close(self) -> None:
        for connections in self._idle.values():
            while connections:
                connections.pop().close()

    def _ask(self, request: HttpRequest, message: bytes, late: gevent.Timeout) -> int:
        """Return the status of the response, after redirects."""
        for _ in range(MAX_REDIRECTS + 1):
            status, location = self._ask_once(request, message, late)
            following = request.redirected(message, status, location)
            if following is None:
                return status
            request = following
        raise OSError(f"stopped after {MAX_REDIRECTS} redirects")

    def _ask_once(self, request: HttpRequest, message: bytes, late: gevent.Timeout) -> tuple[int, str]:
        """Return the status of the response, and its Location."""
        idle = self._idle.setdefault(request.server, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                try:
                    return self._exchange(connection, idle, request.encode(message), late)
                except ConnectionError:  # the server has most likely closed it in this moment
                    break
            connection.close()
        return self._exchange(self._connect(request.server), idle, request.encode(message), late)

    def _exchange(
        self,
        connection: _ServerConnection,
        idle: list[_ServerConnection],
        request: bytes,
        late: gevent.Timeout,
    ) -> tuple[int, str]:
        try:
            connection.exchange(request, late)
        # Also a gevent time-out, which is no Exception: a late response must not be read.
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable:
            connection.idle_since_s = monotonic()
            idle.append(connection)
        else:
            connection.close()
        return connection.status, connection.location

    def _connect(self, server: Server) -> _ServerConnection:
        too_late = TimeoutError(f"no connection within {self._client.connect_timeout_s}s")
        with gevent.Timeout(self._client.connect_timeout_s, too_late):
            tls = self._client.tls if server.is_secure else None
            return _ServerConnection(connect_any(resolve_by_hub(server.host, server.port), tls, server.host))
