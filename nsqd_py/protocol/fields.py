"""The JSON objects of IDENTIFY, read as Go's JSON decoder fills a struct."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# What a field takes: str, bool, or the range of a whole number.
Kind = type | range

INT32 = range(-(1 << 31), 1 << 31)
INT64 = range(-(1 << 63), 1 << 63)

_SURROGATE = re.compile("[\ud800-\udfff]")


def decode_fields(body: bytes, fields: Mapping[str, Kind]) -> dict[str, Any]:
    """Every one of `fields`; those that are absent or null with the zero of their kind, others are ignored.

    Names in the body may be in upper or lower case. Raises ValueError for what is no object, and for a value of
    another kind.
    """
    values: dict[str, Any] = {name: 0 if isinstance(kind, range) else kind() for name, kind in fields.items()}
    for key, value in _decode_object(body).items():
        name = key.lower()
        kind = fields.get(name)
        if kind is None or value is None:
            continue
        if not _fits(value, kind):
            raise ValueError(f"{name} is of another type")
        # Half a surrogate pair could be written neither to logs nor to answers.
        values[name] = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value) if kind is str else value
    return values


def _fits(value: object, kind: Kind) -> bool:
    if isinstance(kind, range):
        return type(value) is int and value in kind
    return type(value) is kind


def _decode_object(body: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(body.decode("utf-8", "replace"), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if decoded is None:
        return {}
    if not isinstance(decoded, dict):
        raise ValueError("no object")
    return decoded


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
