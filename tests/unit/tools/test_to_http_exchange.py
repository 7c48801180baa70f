"""One request and its answer, over a socket in memory."""

from __future__ import annotations

import pytest

from nsq_tools.to_http.answers import Answer
from nsq_tools.to_http.sender import Connection, ConnectionEnded

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Socket:
    """Gives what it is told to, an end where nothing is left, and raises what is an error."""

    def __init__(self, *incoming: bytes | OSError, is_broken: bool = False) -> None:
        self._incoming = list(incoming)
        self._is_broken = is_broken
        self.sent: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        if self._is_broken:
            raise BrokenPipeError("broken pipe")
        self.sent.append(data)

    def recv(self, size: int) -> bytes:
        data = self._incoming.pop(0) if self._incoming else b""
        if isinstance(data, OSError):
            raise data
        return data


def test_a_large_body_is_not_copied() -> None:
    sock = Socket(OK, OK)
    line = Connection(sock)
    large = bytes(1_000_000)
    assert line.exchange(b"head", b"body") == line.exchange(b"head", large) == Answer(200, "", True)
    assert sock.sent[:2] == [b"headbody", b"head"]
    assert sock.sent[2] is large


def test_who_answers_before_it_has_read_all_has_answered() -> None:
    line = Connection(Socket(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\n\r\n", is_broken=True))
    assert line.exchange(b"head", b"body") == Answer(413, "", False)


@pytest.mark.parametrize(
    ("sock", "said_nothing"),
    [
        (Socket(), True),
        (Socket(ConnectionResetError("reset")), True),
        (Socket(is_broken=True), True),
        (Socket(b"HTTP/1.1 2"), False),
        (Socket(b"HTTP/1.1 2", ConnectionResetError("reset")), False),
    ],
)
def test_only_who_has_said_nothing_may_be_asked_again(sock: Socket, said_nothing: bool) -> None:
    with pytest.raises(ConnectionEnded) as caught:
        Connection(sock).exchange(b"head", b"body")
    assert caught.value.said_nothing is said_nothing


def test_an_answer_that_ends_with_the_connection_is_one() -> None:
    assert Connection(Socket(b"HTTP/1.1 200 OK\r\n\r\npart")).exchange(b"head", b"") == Answer(200, "", False)
