"""A message as the page gets it: the beginning of its body as text or base64, and the size of the whole. Pure."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from nsqd_py.cluster.values import Figures, number_in

# The part of a body that the page shows: characters, or bytes of a body that is no text.
SHOWN_CHARACTERS = 64 * 1024
_SHOWN_BYTES = SHOWN_CHARACTERS // 4 * 3


def body_of(message: Mapping[str, Any]) -> bytes:
    """Return the body of a message of /channel/peek; empty if it has none."""
    body = message.get("body")
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    try:
        return b64decode(str(message.get("body_base64", "")), validate=True)
    except ValueError:
        return b""


def shown(message: Mapping[str, Any], body: bytes) -> Figures:
    """Return a message with the size of its body, and at most the part of the body that the page shows."""
    row = {key: value for key, value in message.items() if key not in ("body", "body_base64")}
    if "attempts" in row:
        row["attempts"] = number_in(message, "attempts")
    row["size"] = len(body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = b64encode(body[:_SHOWN_BYTES]).decode()
        return row | ({"is_cut": True} if len(body) > _SHOWN_BYTES else {})
    row["body"] = text[:SHOWN_CHARACTERS]
    return row | ({"is_cut": True} if len(text) > SHOWN_CHARACTERS else {})
