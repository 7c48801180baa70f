"""One request and its answer over a connection."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from nsq_tools.to_http.answers import Answer, AnswerReader

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
