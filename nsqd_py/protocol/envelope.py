"""The envelope that carries headers, such as a trace context or the error of a dead letter, around the body of a message.

    magic    8 bytes: 89, "NSQCTX", 01
    size     of the headers, 2 bytes, big-endian
    headers  `name: value` in ASCII, separated by line feeds: of tracing, traceparent and tracestate of W3C Trace Context
    body     the rest

The first byte begins neither UTF-8 nor JSON, so a text is never taken for an envelope.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAGIC = b"\x89NSQCTX\x01"
_SIZE_BYTES = 2
_HEADERS_START = len(MAGIC) + _SIZE_BYTES
_LARGEST_BYTES = 2 ** (8 * _SIZE_BYTES) - 1
_HEADER = re.compile(r"([a-z][a-z0-9_-]*): ([\x20-\x7e]*)")


def wrap(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the body in an envelope with these headers.

    Names are of lower-case letters, digits, `-` and `_`, values of printable ASCII. Raises ValueError for others, and
    if they have more than 65,535 bytes together.
    """
    lines = [f"{name}: {value}" for name, value in headers.items()]
    for line in lines:
        if _HEADER.fullmatch(line) is None:
            raise ValueError(f"{line!r} cannot be a header of an envelope")
    section = "\n".join(lines).encode("ascii")
    if len(section) > _LARGEST_BYTES:
        raise ValueError(
            f"the headers of an envelope have at most {_LARGEST_BYTES} bytes, got {len(section)}"
        )
    return b"".join((MAGIC, len(section).to_bytes(_SIZE_BYTES, "big"), section, body))


def unwrap(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers. What is no envelope, or a damaged one, is returned as it is, without headers."""
    if not data.startswith(MAGIC) or len(data) < _HEADERS_START:
        return data, {}
    end = _HEADERS_START + int.from_bytes(data[len(MAGIC) : _HEADERS_START], "big")
    headers = _parse(data[_HEADERS_START:end])
    if end > len(data) or headers is None:
        return data, {}
    return data[end:], headers


def _parse(section: bytes) -> dict[str, str] | None:
    """Return the headers, or None if one of them is invalid or is there twice."""
    lines = section.decode("latin-1").split("\n") if section else []
    matches = [_HEADER.fullmatch(line) for line in lines]
    headers = {match[1]: match[2] for match in matches if match is not None}
    return headers if len(headers) == len(lines) else None
