"""Sends requests over connections that stay open, each within its time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent

from nsq_tools.to_http.answers import Answer, AnswerReader, BadAnswer
from nsq_tools.to_http.requests import Place, Request
from nsqd_py.net.http.client import connect_any, resolve_by_hub
from nsqd_py.runtime.logs import Log

_READ_BYTES = 64 * 1024
# Up to here, copying the body behind the head is cheaper than a second send.
_JOINED_BYTES = 64 * 1024


class ConnectionEnded(OSError):
    """The server closed the connection; `said_nothing`: before the first byte of an answer."""

    def __init__(self, text: str, *, said_nothing: bool) -> None:
        super().__init__(text)
        self.said_nothing = said_nothing


class Line:
    """A connection to a server, for one request at a time."""

    __slots__ = ("_reader", "_sock", "idle_since_s")

    def __init__(self, sock: Any) -> None:
        """`sock` is connected, and of gevent's."""
        self._sock = sock
        self._reader = AnswerReader()
        self.idle_since_s = 0.0

    def exchange(self, head: bytes, body: bytes) -> Answer:
        """Raises OSError (ConnectionEnded where the server closed it) and BadAnswer; then the line has to be closed."""
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
        """A server that refuses a body may answer and close before it has read all of it."""
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


# As Go's client: after so long a router in between may have forgotten a connection.
IDLE_LIMIT_S = 90.0
MAX_REDIRECTS = 10


class NotDelivered(Exception):
    """The server did not take the message; the text says why. `is_answer`: it said so itself."""

    def __init__(self, text: str, *, is_answer: bool) -> None:
        super().__init__(text)
        self.is_answer = is_answer


class Sender:
    """Many greenlets may send at the same time: each takes a connection, as many as are needed are made."""

    def __init__(
        self,
        connect_timeout_s: float | None,
        request_timeout_s: float | None,
        tls: Any,
        log: Log,
        clock: Callable[[], float],
    ) -> None:
        """None is no limit. `tls` is a context of gevent.ssl; `clock` gives monotonic seconds."""
        self._connect_timeout_s = connect_timeout_s
        self._request_timeout_s = request_timeout_s
        self._tls = tls
        self._log = log
        self._clock = clock
        self._idle: dict[Place, list[Line]] = {}
        self._redirects_seen: set[str] = set()

    def send(self, request: Request, message: bytes) -> None:
        """Returns when the message was taken, that is, answered with 2xx. Raises NotDelivered."""
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
        for lines in self._idle.values():
            while lines:
                lines.pop().close()

    def _ask(self, request: Request, message: bytes) -> Answer:
        """The answer, after redirects."""
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._ask_once(request, message)
            following = request.redirected(message, answer.status, answer.location)
            if following is None:
                return answer
            self._tell_redirect(request, following)
            request = following
        raise OSError(f"stopped after {MAX_REDIRECTS} redirects")

    def _tell_redirect(self, request: Request, following: Request) -> None:
        """Once for each address that redirects."""
        if request.name not in self._redirects_seen:
            self._redirects_seen.add(request.name)
            self._log.warning("%s redirects to %s; each message costs a request more", request.name, following.name)

    def _ask_once(self, request: Request, message: bytes) -> Answer:
        line = self._idle_line(request.place)
        if line is not None:
            try:
                return self._exchange(line, request, message)
            except ConnectionEnded as error:
                # The server closed it while it was idle, most likely.
                if not error.said_nothing:
                    raise
        return self._exchange(Line(self._connect(request.place)), request, message)

    def _exchange(self, line: Line, request: Request, message: bytes) -> Answer:
        try:
            answer = line.exchange(request.head(message), request.body(message))
        except BaseException:  # a time-out is not even an Exception; an answer may come later, so close it
            line.close()
            raise
        if answer.may_stay_open:
            line.idle_since_s = self._clock()
            self._idle.setdefault(request.place, []).append(line)
        else:
            line.close()
        return answer

    def _idle_line(self, place: Place) -> Line | None:
        """The one that was used last."""
        lines = self._idle.get(place)
        if not lines:
            return None
        line = lines.pop()
        if self._clock() - line.idle_since_s < IDLE_LIMIT_S:
            return line
        # Those before it have been idle for longer.
        for old in (line, *lines):
            old.close()
        lines.clear()
        return None

    def _connect(self, place: Place) -> Any:
        too_late = TimeoutError(f"no connection within {self._connect_timeout_s}s")
        with gevent.Timeout(self._connect_timeout_s, too_late):
            tls = self._tls if place.is_secure else None
            return connect_any(resolve_by_hub(place.host, place.port), tls, place.host)
