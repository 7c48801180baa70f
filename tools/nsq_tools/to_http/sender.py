"""Sending requests over persistent connections, with time-outs and redirects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent

from nsq_tools.to_http.answers import Answer, AnswerReader, BadAnswer
from nsq_tools.to_http.requests import Request, Server
from nsqd_py.net.http.client import connect_any, resolve_by_hub
from nsqd_py.runtime.logs import Log

_READ_BYTES = 64 * 1024
# Up to this size, joining head and body is cheaper than a second send.
_JOINED_BYTES = 64 * 1024


class ConnectionEnded(OSError):
    """The server closed the connection. `said_nothing` is True if no byte of a response came before."""

    def __init__(self, text: str, *, said_nothing: bool) -> None:
        super().__init__(text)
        self.said_nothing = said_nothing


class Connection:
    """A connection to a server. It carries one request at a time."""

    __slots__ = ("_reader", "_sock", "idle_since_s")

    def __init__(self, sock: Any) -> None:
        """`sock` is a connected gevent socket."""
        self._sock = sock
        self._reader = AnswerReader()
        self.idle_since_s = 0.0

    def exchange(self, head: bytes, body: bytes) -> Answer:
        """Send a request and return the response.

        Raises OSError (ConnectionEnded if the server closed the connection) and BadAnswer. The caller must then close
        the connection.
        """
        self._reader.begin()
        try:
            self._send(head, body)
        except OSError as error:
            return self._early_answer(error)
        return self._read()

    def close(self) -> None:
        with suppress(OSError):
            self._sock.close()

    def _send(self, head: bytes, body: bytes) -> None:
        if len(body) <= _JOINED_BYTES:
            self._sock.sendall(head + body)
        else:
            self._sock.sendall(head)
            self._sock.sendall(body)

    def _early_answer(self, error: OSError) -> Answer:
        """Return the response of a server that answered and closed before it had read the whole request."""
        try:
            return self._read()
        except ConnectionEnded:
            raise ConnectionEnded(error.strerror or str(error), said_nothing=True) from error

    def _read(self) -> Answer:
        reader = self._reader
        said_nothing = True
        while not reader.is_complete:
            try:
                data = self._sock.recv(_READ_BYTES)
            except OSError as error:
                raise ConnectionEnded(error.strerror or str(error), said_nothing=said_nothing) from error
            if data:
                reader.feed(data)
                said_nothing = False
            elif not reader.end():
                raise ConnectionEnded("the server closed the connection without an answer", said_nothing=said_nothing)
        return reader.answer()


# As in Go's client: a router in between may drop a connection that is idle for longer.
IDLE_LIMIT_S = 90.0
MAX_REDIRECTS = 10
_MOST_REDIRECTS_SEEN = 100


class NotDelivered(Exception):
    """The server did not take the message; the text is the reason. `is_answer` is True after a complete response."""

    def __init__(self, text: str, *, is_answer: bool) -> None:
        super().__init__(text)
        self.is_answer = is_answer


class Sender:
    """Sends messages from many greenlets at the same time, each over a connection of a shared pool."""

    def __init__(
        self, connect_timeout_s: float | None, request_timeout_s: float | None, tls: Any, log: Log, clock: Callable[[], float]
    ) -> None:
        """A time-out of None means no limit. `tls` is a context of gevent.ssl; `clock` returns monotonic seconds."""
        self._connect_timeout_s = connect_timeout_s
        self._request_timeout_s = request_timeout_s
        self._tls = tls
        self._log = log
        self._clock = clock
        self._idle: dict[Server, list[Connection]] = {}
        self._redirects_seen: set[str] = set()

    def send(self, request: Request, message: bytes) -> None:
        """Send a message and wait for a 2xx response. Raises NotDelivered."""
        late = gevent.Timeout(self._request_timeout_s)
        late.start()
        try:
            answer = self._ask(request, message)
        except gevent.Timeout as timeout:
            if timeout is not late:
                raise
            reason = f"no answer within {self._request_timeout_s:g}s"
            raise NotDelivered(f"{request.name}: {reason}", is_answer=False) from None
        except (OSError, BadAnswer, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NotDelivered(f"{request.name}: {reason}", is_answer=False) from error
        finally:
            late.close()
        if not 200 <= answer.status < 300:
            raise NotDelivered(f"{request.name}: got status code {answer.status}", is_answer=True)

    def close(self) -> None:
        for connections in self._idle.values():
            while connections:
                connections.pop().close()

    def _ask(self, request: Request, message: bytes) -> Answer:
        """Return the response, after redirects."""
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._ask_once(request, message)
            following = request.redirected(message, answer.status, answer.location)
            if following is None:
                return answer
            self._tell_redirect(request, following)
            request = following
        raise OSError(f"stopped after {MAX_REDIRECTS} redirects")

    def _tell_redirect(self, request: Request, following: Request) -> None:
        """Log a redirect, once for each address."""
        if request.name not in self._redirects_seen and len(self._redirects_seen) < _MOST_REDIRECTS_SEEN:
            self._redirects_seen.add(request.name)
            self._log.warning("%s redirects to %s; each message needs another request", request.name, following.name)

    def _ask_once(self, request: Request, message: bytes) -> Answer:
        connection = self._idle_connection(request.server)
        if connection is not None:
            try:
                return self._exchange(connection, request, message)
            except ConnectionEnded as error:
                # The server has most likely closed it while it was idle.
                if not error.said_nothing:
                    raise
        return self._exchange(Connection(self._connect(request.server)), request, message)

    def _exchange(self, connection: Connection, request: Request, message: bytes) -> Answer:
        try:
            answer = connection.exchange(request.head(message), request.body(message))
        except BaseException:  # also a gevent time-out, which is no Exception: a late response must not be read
            connection.close()
            raise
        if answer.may_stay_open:
            connection.idle_since_s = self._clock()
            self._idle.setdefault(request.server, []).append(connection)
        else:
            connection.close()
        return answer

    def _idle_connection(self, server: Server) -> Connection | None:
        """Return the idle connection that was used last, or None. Close those that were idle for too long."""
        connections = self._idle.get(server)
        if not connections:
            return None
        connection = connections.pop()
        if self._clock() - connection.idle_since_s < IDLE_LIMIT_S:
            return connection
        # The others have been idle for even longer.
        for old in (connection, *connections):
            old.close()
        connections.clear()
        return None

    def _connect(self, server: Server) -> Any:
        too_late = TimeoutError(f"no connection within {self._connect_timeout_s}s")
        with gevent.Timeout(self._connect_timeout_s, too_late):
            tls = self._tls if server.is_secure else None
            return connect_any(resolve_by_hub(server.host, server.port), tls, server.host)
