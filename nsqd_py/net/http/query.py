"""Queries and escapes of a URL, read as strictly as Go's `net/url` reads them."""

from __future__ import annotations

import re

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,32}", re.ASCII)
_INT64 = range(-(1 << 63), 1 << 63)


class BadQuery(ValueError):
    """A query, or an escape in it, that cannot be understood; the text says what is wrong."""


def parse_query(query: bytes) -> dict[str, str]:
    """The parameters of `a=b&c=d`; of one that comes again the first counts. Raises BadQuery.

    Bytes that are not UTF-8 become surrogates, as in file names.
    """
    params: dict[str, str] = {}
    for part in query.split(b"&"):
        if b";" in part:
            raise BadQuery("invalid semicolon separator in query")
        if part:
            key, _, value = part.partition(b"=")
            params.setdefault(_text(key), _text(value))
    return params


def _text(escaped: bytes) -> str:
    return unescape(escaped.replace(b"+", b" ")).decode("utf-8", "surrogateescape")


def unescape(escaped: bytes) -> bytes:
    """The bytes with `%41` as `A`. Raises BadQuery."""
    return _PERCENT.sub(_byte, escaped) if b"%" in escaped else escaped


def _byte(match: re.Match[bytes]) -> bytes:
    digits = match[1]
    if digits is None:
        bad = match.string[match.start() : match.start() + 3]
        raise BadQuery(f'invalid URL escape "{bad.decode("ascii", "backslashreplace")}"')
    return bytes((int(digits, 16),))


def parse_int64(text: str) -> int:
    """A decimal number that fits in 64 bits with a sign. Raises ValueError for everything else."""
    if _INTEGER.fullmatch(text) is None:  # int() takes more: spaces, underscores, other scripts' digits
        raise ValueError(f"not a number: {text!r}")
    number = int(text)
    if number not in _INT64:
        raise ValueError(f"out of range: {text}")
    return number
