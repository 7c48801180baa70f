"""The JSON objects of IDENTIFY, read as Go's JSON decoder fills a struct."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# The type of a field: str, bool, or the range of an integer.
Kind = type | range

INT32 = range(-(1 << 31), 1 << 31)
INT64 = range(-(1 << 63), 1 << 63)

_SURROGATE = re.compile("[\ud800-\udfff]")


def decode_fields(body: bytes, fields: Mapping[str, Kind]) -> dict[str, Any]:
    """Return all `fields`. One that is absent or null has the zero value of its type; other keys are ignored.

    The case of the keys does not matter. Raises ValueError if the body is not an object, or a value has another type.
    """
    values: dict[str, Any] = {name: 0 if isinstance(kind, range) else kind() for name, kind in fields.items()}
    for key, value in _decode_object(body).items():
        name = key.lower()
        kind = fields.get(name)
        if kind is None or value is None:
            continue
        if not _fits(value, kind):
            raise ValueError(f"{name} is of another type")
        # Half a surrogate pair cannot be written to logs or answers.
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
