"""Responses of servers, byte for byte: which count as delivered, and which connections carry another request."""

from __future__ import annotations

import pytest

from nsq_tools.to_http.requests import GET, HttpRequest
from nsq_tools.to_http.sender import MAX_RESPONSE_BYTES, HttpSender, NotDelivered
from nsqd_py.net.http.client import HttpClient
from tests.support.raw_server import RawServer

HEAD = b"HTTP/1.1 200 OK\r\n"
OK = HEAD + b"Content-Length: 2\r\n\r\nOK"


def sent_twice(response: bytes, closes: bool = False, limit_s: float = 30) -> int:
    """Send two messages; return the number of connections."""
    server, sender = RawServer(response, closes), HttpSender(HttpClient(10, limit_s))
    try:
        for _ in range(2):
            sender.send(HttpRequest(GET, server.url, {}), b"")
    finally:
        sender.close()
        server.close()
    return server.connections


@pytest.mark.parametrize(
    ("response", "closes", "connections"),
    [
        (OK, False, 1),
        (OK, True, 2),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nOK\r\n0\r\n\r\n", False, 1),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", False, 1),
        (HEAD + b"\r\nuntil the end", True, 2),
        (HEAD + b"Content-Length: 9\r\n\r\ncut", True, 2),
        (HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n", False, 2),
        (HEAD + b"Content-Length: 999999\r\n\r\n" + b"x" * MAX_RESPONSE_BYTES, False, 2),
        (OK + OK, False, 2),
        (OK + b"junk", False, 2),
    ],
)
def test_delivered(response: bytes, closes: bool, connections: int) -> None:
    assert sent_twice(response, closes) == connections


@pytest.mark.parametrize(
    ("response", "is_answer", "reason"),
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", True, "got status code 503"),
        (b"SSH-2.0-OpenSSH\r\n", False, "not HTTP"),
        (HEAD + b"X: " + b"x" * MAX_RESPONSE_BYTES, False, "head is too long"),
        (HEAD[:-1], False, "closed the connection without a response"),
        (b"", False, "closed the connection without a response"),
    ],
)
def test_not_delivered(response: bytes, is_answer: bool, reason: str) -> None:
    with pytest.raises(NotDelivered, match=reason) as raised:
        sent_twice(response, closes=True)
    assert raised.value.is_answer is is_answer


ENDLESS = b"Content-Length: 9\r\n\r\ncut"


def test_a_body_that_does_not_end_is_no_reason_to_send_a_message_again() -> None:
    """The status is the answer. A server that streams its answer got each message again and again."""
    assert sent_twice(HEAD + ENDLESS, limit_s=0.2) == 2


@pytest.mark.parametrize(
    ("head", "is_answer", "reason"),
    [
        (b"HTTP/1.1 503 Busy\r\n", True, "got status code 503"),
        (b"HTTP/1.1 302 Found\r\nLocation: /there\r\n", False, "no answer within 0.2s"),
    ],
)
def test_a_refusal_with_a_body_that_does_not_end(head: bytes, is_answer: bool, reason: str) -> None:
    with pytest.raises(NotDelivered, match=reason) as raised:
        sent_twice(head + ENDLESS, limit_s=0.2)
    assert raised.value.is_answer is is_answer
