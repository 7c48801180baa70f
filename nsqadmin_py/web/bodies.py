"""Reads request bodies, with limits on time and size."""

from __future__ import annotations

import json
import re
from typing import Any

import gevent
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request

from nsqadmin_py.web.answers import Refusal

MOST_BYTES = 16 << 20
_DEADLINE_S = 30.0
_decoder = json.JSONDecoder()
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # perhaps half of a pair


def body_of(request: Request, most_bytes: int = MOST_BYTES) -> bytes:
    """Raises Refusal."""
    too_late = Refusal(408, "BODY_TOO_SLOW")
    if (request.content_length or 0) > most_bytes:
        raise Refusal(413, "BODY_TOO_BIG")
    try:
        with gevent.Timeout(_DEADLINE_S, too_late):
            body = request.stream.read(most_bytes + 1)
    except (OSError, HTTPException) as error:  # the client has gone
        raise Refusal(400, "BODY_CUT_OFF") from error
    if len(body) > most_bytes:
        raise Refusal(413, "BODY_TOO_BIG")
    return body


def object_in(request: Request, message: str = "") -> dict[str, Any]:
    """Return the JSON object at the beginning of a body. What follows it is ignored, as by Go.

    Raises Refusal, with `message` or the reason.
    """
    try:
        text = body_of(request).decode("utf-8", "replace").lstrip(" \t\r\n")
        if not text:
            raise Refusal(400, message or "EOF")
        document, _ = _decoder.raw_decode(text)
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Refusal(400, message or "invalid JSON: half of a surrogate pair") from error
    except (ValueError, RecursionError) as error:
        raise Refusal(400, message or f"invalid JSON: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise Refusal(400, message or "json: expected an object")
    return document


def text_of(document: dict[str, Any], name: str, message: str = "") -> str:
    """Return a string of an object; empty if it is missing. The case of its key does not matter. Raises Refusal."""
    value = document.get(name)
    if value is None:
        value = next((other for key, other in document.items() if key.lower() == name), None)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Refusal(400, message or f"json: {name} has to be a string")
    return value
