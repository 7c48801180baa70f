"""Answers, as the bytes that leave: head and body in one piece.

Headers and reason phrases are those that Go's nsqd sends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from json import dumps
from typing import Any

from nsqd_py.errors import HttpError

REASONS = {
    200: "OK",
    301: "Moved Permanently",
    307: "Temporary Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Request Entity Too Large",
    417: "Expectation Failed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# An answer that is longer than this leaves in pieces, each when the client took the one before.
MOST_WHOLE_BYTES = 1 << 20

_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_JSON = "application/json; charset=utf-8"
_PIECE_BYTES = 256 * 1024
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NSQ = "X-Nsq-Content-Type: nsq; version=1.0\r\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered, apart from date and connection. `headers` are whole lines, each with its `\\r\\n`.

    rest  makes what follows `body` when the client has taken that; None if nothing does
    """

    status: int
    headers: str = ""
    body: bytes = b""
    content_type: str = ""
    rest: Iterator[bytes] | None = None


# ---- the forms that there are


def text(body: str) -> Reply:
    """A success in plain words."""
    return Reply(200, _NSQ, body.encode("utf-8", "replace"), _TEXT)


OK = text("OK")
EMPTY = Reply(200, _NSQ)


def json(data: Any, status: int = 200) -> Reply:
    """Data, under this status."""
    import orjson

    return encoded_json(orjson.dumps(data), status)


def encoded_json(body: bytes, status: int = 200) -> Reply:
    """Data that is JSON already, under this status."""
    return Reply(status, _NSQ, body, _JSON)


def json_in_pieces(pieces: Iterator[bytes]) -> Reply:
    """Return JSON that the pieces make up.

    Pieces beyond the first MiB are made as the client takes them. A caller that has so many is in a greenlet.
    """
    begun: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        begun.append(piece)
        size_bytes += len(piece)
        if size_bytes > MOST_WHOLE_BYTES:
            return Reply(200, _NSQ, b"".join(begun), _JSON, _gathered(pieces))
    return encoded_json(b"".join(begun))


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces joined to larger ones."""
    begun: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        begun.append(piece)
        size_bytes += len(piece)
        if size_bytes > _PIECE_BYTES:
            yield b"".join(begun)
            begun.clear()
            size_bytes = 0
    if begun:
        yield b"".join(begun)


def chunk(data: bytes, *, is_http_1_0: bool) -> bytes:
    """A piece of a body whose length the head did not say; an empty one is the end."""
    return data if is_http_1_0 else b"%x\r\n%b\r\n" % (len(data), data)


def failure(error: HttpError, headers: str = "") -> Reply:
    """`{"message":"CODE"}` under the error's status."""
    return Reply(error.status, headers + _NSQ, _small_json({"message": error.message}), _JSON)


def tls_required(https_port: int) -> Reply:
    """Why a plain connection is refused, and where to go instead; a port below 0 is none."""
    message: dict[str, Any] = {"message": "TLS_REQUIRED"}
    if https_port >= 0:
        message["https_port"] = https_port
    return Reply(403, _NSQ, _small_json(message), _JSON)


def _small_json(document: dict[str, Any]) -> bytes:
    """The JSON of an error, without orjson: the constants below are made at the start, and its import takes 12 ms."""
    return dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def plain(status: int, body: str, headers: str = "") -> Reply:
    """Text without NSQ's header: /ping, and what HTTP itself refuses."""
    return Reply(status, headers, body.encode("utf-8", "replace"), _TEXT)


def refused_by_http(status: int, detail: str = "") -> Reply:
    """Bytes that are no request that could be served: `400 Bad Request: detail`."""
    words = f"{status} {REASONS[status]}"
    return plain(status, f"{words}: {detail}" if detail else words)


def redirect(status: int, location: str) -> Reply:
    """Where it is instead; one that is followed with GET says so in HTML too."""
    from html import escape  # its table of entities takes a millisecond, and redirects are rare

    header = f"Location: {location}\r\n"
    if status != 301:
        return Reply(status, header)
    return Reply(status, header, f'<a href="{escape(location)}">{REASONS[status]}</a>.\n\n'.encode(), _HTML)


INTERNAL_ERROR = failure(HttpError(500, "INTERNAL_ERROR"))
TOO_MANY_READERS = failure(HttpError(503, "TOO_MANY_READERS"), "Retry-After: 1\r\n")
EXITING = failure(HttpError(503, "EXITING"))
TOO_MANY_CONNECTIONS = failure(HttpError(503, "TOO_MANY_CONNECTIONS"))
UNAUTHORIZED = failure(
    HttpError(401, "UNAUTHORIZED"),
    'WWW-Authenticate: Basic realm="nsq", charset="UTF-8"\r\nWWW-Authenticate: Bearer realm="nsq"\r\n',
)
TOO_MANY_LOGINS = failure(HttpError(429, "TOO_MANY_LOGINS"), "Retry-After: 1\r\n")


# ---- bytes


def http_date(second: int) -> str:
    """The time in seconds since the epoch, as in a Date header; email.utils would take 5 ms to import."""
    year, month, day, hour, minute, second, weekday, *_ = time.gmtime(second)
    return f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year:04} {hour:02}:{minute:02}:{second:02} GMT"


class Prepared:
    """What stays the same for a second: the date, and the answer to a publish with it."""

    __slots__ = ("date", "ok", "valid_until_s")

    def __init__(self) -> None:
        self.valid_until_s = 0.0
        self.renew(time.time())

    def renew(self, now_s: float) -> None:
        """Bring it up to date; times in s since the epoch."""
        second = int(now_s)
        # A clock that was set back must not leave a date of the future here for long.
        self.valid_until_s = second + 1.0
        self.date = http_date(second)
        self.ok = _bytes(OK, self.date, "HTTP/1.1", "", with_body=True)


def encode(reply: Reply, *, is_http_1_0: bool, keep_alive: bool, with_body: bool = True) -> bytes:
    """The answer to a request of this version; without a body to HEAD."""
    now_s = time.time()
    if now_s >= PREPARED.valid_until_s:
        PREPARED.renew(now_s)
    keep_alive = keep_alive and not (is_http_1_0 and reply.rest)
    if is_http_1_0:
        version, connection = "HTTP/1.0", "Connection: keep-alive\r\n" if keep_alive else ""
    else:
        version, connection = "HTTP/1.1", "" if keep_alive else "Connection: close\r\n"
    return _bytes(reply, PREPARED.date, version, connection, with_body)


def farewell() -> bytes:
    """What a client gets that is not let in."""
    return encode(TOO_MANY_CONNECTIONS, is_http_1_0=False, keep_alive=False)


def in_place_of(answer: bytes, reply: Reply) -> bytes:
    """Another answer to the same request."""
    is_http_1_0 = answer.startswith(b"HTTP/1.0")
    head = answer[: answer.index(b"\r\n\r\n")]
    keep_alive = b"Connection: keep-alive" in head if is_http_1_0 else b"Connection: close" not in head
    return encode(reply, is_http_1_0=is_http_1_0, keep_alive=keep_alive)


def _bytes(reply: Reply, date: str, version: str, connection: str, with_body: bool) -> bytes:
    if reply.rest is None:
        length, body = f"Content-Length: {len(reply.body)}\r\n", reply.body
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


_CRLF = "\r\n"
PREPARED = Prepared()
