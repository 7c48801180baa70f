"""Answers in the form of Go's nsqadmin, and request bodies."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import gevent
import orjson
from gevent.lock import BoundedSemaphore
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from nsqadmin_py.refusals import RequestRefused
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.runtime.threads import in_slices

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
MOST_BYTES = 16 << 20

# The error of an nsqd that does not know a path: Go's, or an older one.
_CANNOT = "not supported by this nsqd"
_GZIP_FROM_BYTES = 1024
_GZIP_LEVEL = 4
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_PART_BYTES = 64 * 1024  # takes about 1 ms
_COMPRESSIBLE = ("application/json", "text/", "image/svg", "application/javascript")

# Bodies up to this size hold any JSON. Longer ones are held a few at a time, and their JSON is long strings
# with little between them: 16 MiB of empty lists would take 2 s and 600 MB.
_SHORT_BYTES = 64 * 1024
_MOST_STRINGS = 1000
_DEADLINE_S = 30.0
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # perhaps half of a pair

# Returns a response, or a document that the answer has as JSON.
Handler = Callable[..., Any]

_long_bodies = BoundedSemaphore(4)
_decoder = json.JSONDecoder()


# ---- refusals of nsqds


def is_missing_path(error: UpstreamError) -> bool:
    """True if the nsqd does not know the path. Other errors with status 404 have other messages."""
    return error.status == 404 and error.message == "NOT_FOUND"


def reason_of(error: UpstreamError) -> str:
    if is_missing_path(error):
        return _CANNOT
    return error.message or str(error)


def refusal_of(error: UpstreamError) -> RequestRefused:
    """Return the answer to a request that an nsqd refused: 404 as the nsqd, else 502."""
    if error.status == 404 and not is_missing_path(error):
        return RequestRefused(404, error.message or "NOT_FOUND")
    return upstream_failed(reason_of(error))


def upstream_failed(reason: str, **more: Any) -> RequestRefused:
    return RequestRefused(502, f"UPSTREAM_ERROR: {reason}", **more)


# ---- answers


def uncached(body: bytes | str | Iterable[bytes], content_type: str, status: int = 200) -> Response:
    return Response(body, status, {"Content-Type": content_type, "Cache-Control": "no-store"})


def as_json(document: Any, status: int = 200) -> Response:
    """Return an answer of our own API."""
    return uncached(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS), JSON, status)


def as_go(data: Any, status: int = 200) -> Response:
    """Return an answer as Go's nsqadmin does: text unchanged, all else as JSON."""
    if isinstance(data, str):
        response = plain(data)
    else:
        response = as_json(data, status)
    response.headers["X-Nsq-Content-Type"] = "nsq; version=1.0"
    return response


def refused(refusal: RequestRefused) -> Response:
    return as_go({"message": refusal.message, **refusal.more}, refusal.status)


def plain(text: str) -> Response:
    return uncached(text, TEXT)


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
    if len(body) >= _GZIP_FROM_BYTES:
        compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        starts = in_slices(range(0, len(body), _PART_BYTES))
        parts = [compressor.compress(body[start : start + _PART_BYTES]) for start in starts]
        response.set_data(b"".join([*parts, compressor.flush()]))
        response.headers["Content-Encoding"] = "gzip"


# ---- request bodies


def body_of(request: Request, most_bytes: int = MOST_BYTES) -> bytes:
    """Raises RequestRefused."""
    too_big = RequestRefused(413, "BODY_TOO_BIG")
    if (request.content_length or 0) > most_bytes:
        raise too_big
    try:
        with gevent.Timeout(_DEADLINE_S, RequestRefused(408, "BODY_TOO_SLOW")):
            body = request.stream.read(most_bytes + 1)
    except (OSError, HTTPException) as error:  # the client has gone
        raise RequestRefused(400, "BODY_CUT_OFF") from error
    if len(body) > most_bytes:
        raise too_big
    return body


def turn_of_body(request: Request) -> AbstractContextManager[Any]:
    """Return a context that waits for the turn of a long body, and holds it.

    The server ends connections that wait for long.
    """
    is_short = request.content_length is not None and request.content_length <= _SHORT_BYTES
    return nullcontext() if is_short else _long_bodies


def object_in(request: Request, message: str = "", most_bytes: int = _SHORT_BYTES) -> dict[str, Any]:
    """Return the JSON object at the beginning of a body. What follows it is ignored, as by Go.

    Raises RequestRefused, with `message` or the reason.
    """
    try:
        text = body_of(request, most_bytes).decode("utf-8", "replace").lstrip(" \t\r\n")
        if not text:
            raise RequestRefused(400, message or "EOF")
        _check_values(text)
        document, _ = _decoder.raw_decode(text)
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RequestRefused(400, message or "invalid JSON: half of a surrogate pair") from error
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, message or f"invalid JSON: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise RequestRefused(400, message or "json: expected an object")
    return document


def _check_values(text: str) -> None:
    """Raises ValueError for a long text with too many values."""
    if len(text) <= _SHORT_BYTES:
        return
    position = 0
    between = 0
    count = 0
    while position < len(text):
        quote = text.find('"', position)
        end = quote if quote >= 0 else len(text)
        between += end - position
        count += 1
        if between > _SHORT_BYTES or count > _MOST_STRINGS:
            raise ValueError("too many values")
        position = end
        if quote >= 0:
            position = _decoder.raw_decode(text, quote)[1]


def text_of(document: dict[str, Any], name: str, message: str = "") -> str:
    """Return a string of an object; empty if it is missing. The case of its key does not matter.

    Raises RequestRefused.
    """
    values = [value for key, value in document.items() if key.lower() == name]
    given = [value for value in values if value is not None]
    if not given:
        return ""
    if not isinstance(given[0], str):
        raise RequestRefused(400, message or f"json: {name} has to be a string")
    return given[0]
