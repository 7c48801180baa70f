"""HTTP responses, encoded with head and body in one piece. Headers and reason phrases are those of Go's nsqd."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from json import dumps
from typing import Any, NamedTuple

from gevent.event import Event

from nsqd_py.errors import HttpError
from nsqd_py.net.addresses import host_of

REASONS = {
    200: "OK",
    301: "Moved Permanently",
    308: "Permanent Redirect",
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

# A longer answer is sent in pieces; each is sent when the client has taken the previous one.
MOST_WHOLE_BYTES = 1 << 20

_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_JSON = "application/json; charset=utf-8"
_PIECE_BYTES = 256 * 1024
_NSQ = "X-Nsq-Content-Type: nsq; version=1.0\r\n"

_CRLF = "\r\n"

# Handlers of long answers that run at the same time. The size of an answer is unknown until its handler returns.
MOST_RUNNING = 2
MOST_UNREAD_BYTES = 32 * 1024 * 1024
# The part for the clients of one address, so that one address does not keep others from reading.
MOST_UNREAD_OF_ADDRESS = MOST_UNREAD_BYTES // 4
WAIT_S = 10.0


class Reply(NamedTuple):
    """A response, without the headers Date and Connection.

    headers  whole lines, each with its `\\r\\n`
    rest     yields the pieces that follow `body`, as the client takes them; None if `body` is everything
    """

    status: int
    headers: str = ""
    body: bytes = b""
    content_type: str = ""
    rest: Iterator[bytes] | None = None


# ---- kinds of responses


def text(body: str) -> Reply:
    """Return a 200 with plain text."""
    return Reply(200, _NSQ, body.encode("utf-8", "replace"), _TEXT)


OK = text("OK")
EMPTY = Reply(200, _NSQ)


def json(data: Any, status: int = 200) -> Reply:
    """Return a response with `data` encoded as JSON."""
    import orjson

    return Reply(status, _NSQ, orjson.dumps(data), _JSON)


def in_pieces(pieces: Iterator[bytes], content_type: str = _JSON, headers: str = _NSQ) -> Reply:
    """Return a response with the body that the pieces make up, by default JSON.

    Pieces beyond the first MiB are generated as the client takes them; then the caller must run in a greenlet.
    """
    body, has_more = _joined(pieces, MOST_WHOLE_BYTES)
    return Reply(200, headers, body, content_type, _gathered(pieces) if has_more else None)


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces joined to larger ones."""
    has_more = True
    while has_more:
        body, has_more = _joined(pieces, _PIECE_BYTES)
        if body:  # an empty chunk would end the answer
            yield body


def _joined(pieces: Iterator[bytes], enough_bytes: int) -> tuple[bytes, bool]:
    """Return (pieces joined until they have more than `enough_bytes`, True if there may be more)."""
    taken: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        taken.append(piece)
        size_bytes += len(piece)
        if size_bytes > enough_bytes:
            return b"".join(taken), True
    return b"".join(taken), False


def chunk(data: bytes, *, is_http_1_0: bool) -> bytes:
    """Return one chunk of a body without Content-Length; an empty one ends the body."""
    return data if is_http_1_0 else b"%x\r\n%b\r\n" % (len(data), data)


def failure(error: HttpError, headers: str = "") -> Reply:
    """Return a response with the error's status and `{"message":"CODE"}`."""
    return Reply(error.status, headers + _NSQ, _small_json({"message": error.message}), _JSON)


def tls_required(https_port: int) -> Reply:
    """Return a 403 for a connection without TLS; it names the HTTPS port unless that is below 0."""
    message: dict[str, Any] = {"message": "TLS_REQUIRED"}
    if https_port >= 0:
        message["https_port"] = https_port
    return Reply(403, _NSQ, _small_json(message), _JSON)


def _small_json(document: dict[str, Any]) -> bytes:
    """Encode JSON without orjson: the constants below are made at start-up, and orjson takes 12 ms to import."""
    return dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def plain(status: int, body: str, headers: str = "") -> Reply:
    """Return a response with text and without NSQ's header, for /ping and errors of HTTP itself."""
    return Reply(status, headers, body.encode("utf-8", "replace"), _TEXT)


def refused_by_http(status: int, detail: str = "") -> Reply:
    """Return the response to a malformed or unsupported request: `400 Bad Request: detail`."""
    words = f"{status} {REASONS[status]}"
    return plain(status, f"{words}: {detail}" if detail else words)


def redirect(status: int, location: str) -> Reply:
    """Return a redirect. A 301 has an HTML body with the location too, as in Go."""
    from html import escape  # its table of entities takes a millisecond, and redirects are rare

    header = f"Location: {location}\r\n"
    if status != 301:
        return Reply(status, header)
    return Reply(status, header, f'<a href="{escape(location)}">{REASONS[status]}</a>.\n\n'.encode(), _HTML)


INTERNAL_ERROR = failure(HttpError(500, "INTERNAL_ERROR"))
TOO_MANY_READERS = failure(HttpError(503, "TOO_MANY_READERS"), "Retry-After: 1\r\n")
TOO_MANY_CONNECTIONS = failure(HttpError(503, "TOO_MANY_CONNECTIONS"))
UNAUTHORIZED = failure(
    HttpError(401, "UNAUTHORIZED"),
    'WWW-Authenticate: Basic realm="nsq", charset="UTF-8"\r\nWWW-Authenticate: Bearer realm="nsq"\r\n',
)
TOO_MANY_LOGINS = failure(HttpError(429, "TOO_MANY_LOGINS"), "Retry-After: 1\r\n")


# ---- bytes


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
        version, connection = "HTTP/1.0", "Connection: keep-alive\r\n" if keep_alive else ""
    else:
        version, connection = "HTTP/1.1", "" if keep_alive else "Connection: close\r\n"
    return _bytes(reply, PREPARED.date, version, connection, with_body)


def refused_connection() -> bytes:
    """Return the response for a connection above the limit."""
    return encode(TOO_MANY_CONNECTIONS, is_http_1_0=False, keep_alive=False)


def in_place_of(answer: bytes, reply: Reply) -> bytes:
    """Return another response in place of an encoded one, for the same HTTP version and connection handling."""
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


PREPARED = PreparedAnswer()


# ---- Bounds the memory of long answers that clients have not read yet.


class ResponseLimiter:
    """Admits requests with long answers while few bytes of such answers are unread.

    An answer counts from its encoding until the client's socket has accepted it. The bound is exceeded by at most
    the MOST_RUNNING answers that were admitted before it was reached.
    """

    def __init__(self) -> None:
        self.unread_bytes = 0
        self._unread_of: Counter[str] = Counter()
        self._running = 0
        self._changed = Event()

    def is_open(self, peer: str) -> bool:
        """True if a request of this client may run now."""
        return self._running < MOST_RUNNING and self.has_room(peer)

    def has_room(self, peer: str) -> bool:
        """True if the unread answers are below the bounds, in total and for the client's address."""
        return (
            self.unread_bytes < MOST_UNREAD_BYTES
            and self._unread_of.get(host_of(peer), 0) < MOST_UNREAD_OF_ADDRESS
        )

    def enter(self, peer: str, wait_s: float = WAIT_S) -> bool:
        """Wait until a request of this client may run, and count it as running. False if `wait_s` pass before."""
        end_s = time.monotonic() + wait_s
        while not self.is_open(peer):
            self._changed.clear()
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not self._changed.wait(left_s):
                return False
        self._running += 1
        return True

    def leave(self) -> None:
        """End the request that `enter` counted."""
        self._running -= 1
        self._changed.set()

    def count(self, peer: str, change_bytes: int) -> None:
        """Count bytes of an answer to this client as unread, or below 0 those that it has read, or will not read."""
        host = host_of(peer)
        self.unread_bytes += change_bytes
        self._unread_of[host] += change_bytes
        if not self._unread_of[host]:
            del self._unread_of[host]
        self._changed.set()
