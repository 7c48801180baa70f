"""Sending requests over persistent connections, with time-outs and redirects."""

from __future__ import annotations

import http.client
import select
from time import monotonic
from typing import Any

import gevent

from nsq_tools.to_http.requests import HttpRequest, Server
from nsqd_py.net.http.client import HttpClient, connect_any, resolve_by_hub
from nsqd_py.runtime.logs import Log

# Bodies are discarded; closing the connection is cheaper than reading a longer one.
MAX_BODY_BYTES = 256 * 1024
# As in Go's client. A router in between may drop a connection that is idle for longer.
IDLE_LIMIT_S = 90.0
MAX_REDIRECTS = 10
_MOST_REDIRECTS_SEEN = 100


class NotDelivered(Exception):
    """The server did not take the message; the text is the reason. `is_answer` is True after a complete response."""

    def __init__(self, text: str, *, is_answer: bool) -> None:
        super().__init__(text)
        self.is_answer = is_answer


class _ServerConnection(http.client.HTTPConnection):
    """A connection to a server, opened by the first request. It carries one request at a time."""

    def __init__(self, server: Server, client: HttpClient) -> None:
        super().__init__(server.host, server.port)
        self._server = server
        self._client = client
        self.idle_since_s = 0.0

    def connect(self) -> None:
        too_late = TimeoutError(f"no connection within {self._client.connect_timeout_s}s")
        with gevent.Timeout(self._client.connect_timeout_s, too_late):
            tls = self._client.tls if self._server.is_secure else None
            self.sock: Any = connect_any(resolve_by_hub(self._server.host, self._server.port), tls, self._server.host)

    def exchange(self, request: HttpRequest, message: bytes) -> http.client.HTTPResponse:
        """Send a request and return the response without its body. Raises OSError and HTTPException."""
        self.putrequest(request.method, request.target(message), skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers_for(message).items():
            self.putheader(name, value.encode())
        try:
            self.endheaders(request.body(message) or None)
        except OSError:
            if self.sock is None:
                raise
            # The server may have answered before it had read the whole request.
        response = self.getresponse()
        response.read(MAX_BODY_BYTES)
        if not response.isclosed():
            self.close()
        return response

    def is_usable(self) -> bool:
        """True if the connection was not idle for too long, and the server has neither closed it nor sent anything."""
        arrived = select.poll()
        arrived.register(self.sock, select.POLLIN)
        return monotonic() - self.idle_since_s < IDLE_LIMIT_S and not arrived.poll(0)


class HttpSender:
    """Sends messages from many greenlets at the same time, each over a connection of a shared pool."""

    def __init__(self, client: HttpClient, log: Log) -> None:
        """`client` has the time-outs and the TLS context."""
        self._client = client
        self._log = log
        self._idle: dict[Server, list[_ServerConnection]] = {}
        self._redirects_seen: set[str] = set()

    def send(self, request: HttpRequest, message: bytes) -> None:
        """Send a message and wait for a 2xx response. Raises NotDelivered."""
        limit_s = self._client.request_timeout_s
        late = gevent.Timeout(limit_s)
        late.start()
        try:
            status = self._ask(request, message)
        except gevent.Timeout as timeout:
            if timeout is not late:
                raise
            raise NotDelivered(f"{request.name}: no answer within {limit_s:g}s", is_answer=False) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
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

    def _ask(self, request: HttpRequest, message: bytes) -> int:
        """Return the status of the response, after redirects."""
        for _ in range(MAX_REDIRECTS + 1):
            response = self._ask_once(request, message)
            following = request.redirected(message, response.status, response.headers.get("Location", ""))
            if following is None:
                return response.status
            if request.name not in self._redirects_seen and len(self._redirects_seen) < _MOST_REDIRECTS_SEEN:
                self._redirects_seen.add(request.name)
                self._log.warning("%s redirects to %s; each message needs another request", request.name, following.name)
            request = following
        raise OSError(f"stopped after {MAX_REDIRECTS} redirects")

    def _ask_once(self, request: HttpRequest, message: bytes) -> http.client.HTTPResponse:
        idle = self._idle.setdefault(request.server, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable():
                try:
                    return self._exchange(connection, request, message)
                except ConnectionError:  # the server has most likely closed it in this moment
                    break
            connection.close()
        return self._exchange(_ServerConnection(request.server, self._client), request, message)

    def _exchange(self, connection: _ServerConnection, request: HttpRequest, message: bytes) -> http.client.HTTPResponse:
        try:
            response = connection.exchange(request, message)
        except BaseException:  # also a gevent time-out, which is no Exception: a late response must not be read
            connection.close()
            raise
        if connection.sock is not None:
            connection.idle_since_s = monotonic()
            self._idle[request.server].append(connection)
        return response
