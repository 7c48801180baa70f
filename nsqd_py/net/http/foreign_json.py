"""JSON from another machine. Its number of values is limited before it is parsed, which limits the memory."""

from __future__ import annotations

import json
from typing import Any

# A value costs up to 200 bytes of memory, but only two bytes of JSON. Figures of an nsqd have 30 bytes for each.
MAX_VALUES = 1_000_000
_COUNTED_FROM_BYTES = MAX_VALUES  # a shorter document cannot hold more than MAX_VALUES
_SLICE_BYTES = 1 << 20
_VALUE_STARTS = (b",", b"[", b"{")


def load_foreign_json(body: bytes) -> Any:
    """Return the document. Raises ValueError if `body` is not JSON or has more than MAX_VALUES values."""
    if len(body) > _COUNTED_FROM_BYTES and _has_too_many_values(body):
        raise ValueError(f"the answer has more than {MAX_VALUES} values")
    try:
        import orjson  # here, so that the client library works where it is not installed
    except ModuleNotFoundError:
        return _loads_slowly(body)
    return orjson.loads(body)


def _loads_slowly(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError as error:
        raise ValueError("the answer has too many levels") from error


def _has_too_many_values(body: bytes) -> bool:
    """True if there are more than MAX_VALUES commas and brackets. Those inside strings count too."""
    count = 0
    for begin in range(0, len(body), _SLICE_BYTES):
        count += sum(body.count(mark, begin, begin + _SLICE_BYTES) for mark in _VALUE_STARTS)
        if count > MAX_VALUES:
            return True
    return False
