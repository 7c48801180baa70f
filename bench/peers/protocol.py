"""What a publisher needs of a server's protocol: a connection, requests as bytes, and a counter of answers."""

import re
import socket
from collections.abc import Sequence
from typing import Protocol

from bench.run import LoadError

ANSWER_WITHIN_S = 30.0


class AnswerCounter(Protocol):
    """Count the answers in what one connection receives."""

    def feed(self, data: bytes) -> int:
        """Return the number of answers that `data` completes. Raises LoadError if one is an error."""
        ...


class MarkCounter:
    """Count answers that contain the byte `mark` once. An error matches `error`.

    A single byte is never divided between two reads, so the counter keeps no rest.
    """

    __slots__ = ("_find_error", "_mark")

    def __init__(self, mark: bytes, error: bytes) -> None:
        self._mark = mark
        self._find_error = re.compile(error).search

    def feed(self, data: bytes) -> int:
        if self._find_error(data):
            raise LoadError(f"the server answered {data[:200]!r}")
        return data.count(self._mark)


class PublisherProtocol:
    """A server's protocol. Its methods belong to the class: a generator uses them in a process without the server."""

    @classmethod
    def connect(cls, port: int) -> socket.socket:
        """Return a blocking connection that is ready to publish."""
        sock = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_WITHIN_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        cls.greet(sock)
        return sock

    @classmethod
    def greet(cls, sock: socket.socket) -> None:
        """Send what the protocol wants first, and read the answers. Does nothing by default."""

    @classmethod
    def declare(cls, sock: socket.socket, topics: Sequence[str]) -> None:
        """Create the topics, where a publish does not do it. Does nothing by default."""

    @classmethod
    def request(cls, sock: socket.socket, topic: str, body: bytes, batch: int) -> bytes:
        """Return the bytes that publish `batch` copies of `body` to a topic on this connection."""
        raise NotImplementedError

    @classmethod
    def answers(cls, batch: int) -> int:
        """Return the number of answers to a request of `batch` messages: one for each, by default."""
        return batch

    @classmethod
    def counter(cls) -> AnswerCounter:
        raise NotImplementedError


def read_until(sock: socket.socket, end: bytes) -> bytes:
    """Read until the bytes received end with `end`. Raises LoadError if the server closes the connection before."""
    received = b""
    while not received.endswith(end):
        data = sock.recv(65536)
        if not data:
            raise LoadError(f"the server closed the connection after {received[-200:]!r}")
        received += data
    return received
