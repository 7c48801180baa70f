"""Answers in the form of Go's nsqadmin, and refusals."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from werkzeug.wrappers import Request, Response

Handler = Callable[..., Response]

GZIP_FROM_BYTES = 1024
_GZIP_LEVEL = 4
_MOST_DIGITS = 12
_JSON = "application/json; charset=utf-8"
_COMPRESSIBLE = ("application/json", "text/", "image/svg", "application/javascript")


class Refusal(Exception):
    """A refused request: the status, and the `message` of its JSON."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.more = more


class NotThere(Refusal):
    """The requested thing is not known (yet)."""

    def __init__(self, message: str) -> None:
        super().__init__(404, message)


def number_of(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    """Return a whole number from 0 to `most` of a query. Raises Refusal."""
    text = query.get(name) or str(default)
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) > most:
        raise Refusal(400, f"INVALID_ARG_{name.upper()}")
    return int(text)


def as_json(document: Any, status: int = 200) -> Response:
    """Return an answer of our own API, which must not be cached."""
    body = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)
    return Response(body, status, {"Content-Type": _JSON, "Cache-Control": "no-store"})


def as_go(data: Any, status: int = 200) -> Response:
    """Return an answer as Go's nsqadmin does: text unchanged, all else as JSON."""
    if isinstance(data, str):
        response = Response(data, status, {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"})
    else:
        response = as_json(data, status)
    response.headers["X-NSQ-Content-Type"] = "nsq; version=1.0"
    return response


def refused(refusal: Refusal) -> Response:
    return as_go({"message": refusal.message, **refusal.more}, refusal.status)


def plain(text: str) -> Response:
    return Response(text, 200, {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"})


def compress(request: Request, response: Response) -> None:
    """Compress the answer with gzip if the client accepts it and it is large enough."""
    if response.is_streamed or response.direct_passthrough or "Content-Encoding" in response.headers:
        return
    if not response.content_type.startswith(_COMPRESSIBLE):
        return
    response.headers.add("Vary", "Accept-Encoding")
    if request.accept_encodings["gzip"] <= 0 or response.status_code != 200:
        return
    body = response.get_data()
    if len(body) >= GZIP_FROM_BYTES:
        response.set_data(gzip.compress(body, _GZIP_LEVEL, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
