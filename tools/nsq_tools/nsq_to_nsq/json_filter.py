"""Filtering JSON messages by a field, and reducing them to some of their fields. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from enum import Enum
from typing import Any

import orjson


class FilterResult(Enum):
    """The result of filtering a message."""

    PASS = "pass"
    DROP = "does not meet the requirements"
    UNREADABLE = "is not a JSON object"
    INCOMPLETE = "lacks the field that must have a certain value"


class JsonFilter:
    """Passes JSON objects that have a required field, optionally with a required value; keeps only allowed fields.

    The required value is compared with strings as text, and with numbers as a floating-point number if it is one;
    true, false, null, lists and objects never match.
    """

    def __init__(self, required_field: str, required_value: str, allowed_fields: Sequence[str]) -> None:
        """An empty argument disables its check."""
        self._field = required_field
        self._value = required_value
        self._number = parse_number(required_value)
        self._allowed = tuple(allowed_fields)

    @property
    def is_on(self) -> bool:
        return bool(self._field or self._allowed)

    def judge(self, body: bytes) -> tuple[FilterResult, bytes]:
        """Return the verdict, and the body to send if it is PASS."""
        try:
            document = read_object(body)
        except ValueError:
            return FilterResult.UNREADABLE, body
        if self._field:
            verdict = self._judge(document)
        else:
            verdict = FilterResult.PASS
        if verdict is FilterResult.PASS and self._allowed:
            allowed = {name: document[name] for name in self._allowed if name in document}
            body = orjson.dumps(allowed, option=orjson.OPT_SORT_KEYS)
        return verdict, body

    def _judge(self, document: dict[str, Any]) -> FilterResult:
        if self._field not in document:
            if self._value:
                return FilterResult.INCOMPLETE
            return FilterResult.DROP
        is_met = not self._value or self._equals(document[self._field])
        return FilterResult.PASS if is_met else FilterResult.DROP

    def _equals(self, value: object) -> bool:
        if isinstance(value, str):
            return value == self._value
        # Not isinstance: a bool is an int in Python, and no number in JSON.
        return self._number is not None and type(value) in (int, float) and float(value) == self._number  # type: ignore[arg-type]


def parse_number(text: str) -> float | None:
    """Return the number in the text, or None if the text is not a finite number."""
    try:
        if text.strip() == text:
            number = float(text)
        else:
            number = math.inf
    except ValueError:
        return None
    if math.isfinite(number):
        return number
    return None


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object; `null` is an empty object, as in Go. Raises ValueError.

    Invalid UTF-8 and unpaired surrogates are replaced, as in Go. More than about 1000 levels are an error.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            text = json.dumps(json.loads(body.decode("utf-8", "replace")), ensure_ascii=False)
        except RecursionError as error:
            raise ValueError("too deep") from error
        document = orjson.loads(text.encode("utf-8", "replace"))
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return document
