"""HTTP responses: their status, headers and body. Headers and reason phrases are those of Go's nsqd."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps
from typing import Any, NamedTuple

from nsqd_py.errors import HttpError

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
# A longer answer is sent in pieces; each is sent when the client has taken the previous one.
MOST_WHOLE_BYTES = 1 << 20

_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_JSON = "application/json; charset=utf-8"
_PIECE_BYTES = 256 * 1024
_NSQ = "X-Nsq-Content-Type: nsq; version=1.0\r\n"


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
    """Encode JSON without orjson: some responses are made at start-up, and orjson takes 12 ms to import."""
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
