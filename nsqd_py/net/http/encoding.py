"""Encodes HTTP responses, with head and body in one piece."""

from __future__ import annotations

import time

from nsqd_py.net.http.answers import OK, REASONS, Reply
from nsqd_py.net.http.failures import TOO_MANY_CONNECTIONS

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CRLF = "\r\n"


class PreparedAnswer:
    """The Date header and the encoded answer to a publish, which stay the same for a second.

    valid_until_s  the end of that second, on the monotonic clock: a wall clock that is set back must not prolong it
    """

    __slots__ = ("date", "ok", "valid_until_s")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Set both to the current second."""
        now_s = time.time()
        second = int(now_s)
        self.valid_until_s = time.monotonic() + (second + 1 - now_s)
        # The names of days and months are English: the program does not set LC_TIME.
        self.date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(second))
        self.ok = _bytes(OK, self.date, "HTTP/1.1", "", with_body=True)


def encode(reply: Reply, *, is_http_1_0: bool, keep_alive: bool, with_body: bool = True) -> bytes:
    """Return the bytes of a response. `with_body` is False in answer to HEAD."""
    if time.monotonic() >= PREPARED.valid_until_s:
        PREPARED.renew()
    keep_alive = keep_alive and not (is_http_1_0 and reply.rest)
    if is_http_1_0:
        version = "HTTP/1.0"
        connection = "Connection: keep-alive\r\n" if keep_alive else ""
    else:
        version = "HTTP/1.1"
        connection = "" if keep_alive else "Connection: close\r\n"
    return _bytes(reply, PREPARED.date, version, connection, with_body)


def refused_connection() -> bytes:
    """Return the response for a connection above the limit."""
    return encode(TOO_MANY_CONNECTIONS, is_http_1_0=False, keep_alive=False)


def replacement_for(answer: bytes, reply: Reply) -> bytes:
    """Return another response instead of an encoded one, for the same HTTP version and connection handling."""
    is_http_1_0 = answer.startswith(b"HTTP/1.0")
    head = answer[: answer.index(b"\r\n\r\n")]
    keep_alive = b"Connection: keep-alive" in head if is_http_1_0 else b"Connection: close" not in head
    return encode(reply, is_http_1_0=is_http_1_0, keep_alive=keep_alive)


def _bytes(reply: Reply, date: str, version: str, connection: str, with_body: bool) -> bytes:
    if reply.rest is None:
        length = f"Content-Length: {len(reply.body)}\r\n"
        body = reply.body
    else:
        is_http_1_0 = version == "HTTP/1.0"
        length = "" if is_http_1_0 else "Transfer-Encoding: chunked\r\n"
        body = chunk(reply.body, is_http_1_0=is_http_1_0)
    head = (
        f"{version} {reply.status} {REASONS[reply.status]}\r\n"
        f"{reply.headers}"
        f"Date: {date}\r\n"
        f"{length}"
        f"{f'Content-Type: {reply.content_type}{_CRLF}' if reply.content_type else ''}"
        f"{connection}\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")


def chunk(data: bytes, *, is_http_1_0: bool) -> bytes:
    """Return one chunk of a body without Content-Length; an empty one ends the body."""
    if is_http_1_0:
        return data
    return b"%x\r\n%b\r\n" % (len(data), data)


PREPARED = PreparedAnswer()
