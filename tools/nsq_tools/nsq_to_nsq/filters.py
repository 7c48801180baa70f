"""Choosing JSON messages and their fields by the rules of Go's nsq_to_nsq. Pure."""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import orjson

# Numbers as Go's strconv.ParseFloat reads them.
_DIGITS = r"\d+(?:_\d+)*"
_DECIMAL = re.compile(rf"[+-]?({_DIGITS}\.?({_DIGITS})?|\.{_DIGITS})([eE][+-]?{_DIGITS})?", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX]([\da-fA-F]+\.?[\da-fA-F]*|\.[\da-fA-F]+)[pP][+-]?\d+", re.ASCII)
_MAX_INT64 = 2**63
# Characters that Go's JSON escapes and orjson does not; they occur only in strings.
_ESCAPES = tuple((character.encode(), b"\\u%04x" % ord(character)) for character in "&<>\u2028\u2029")


class Verdict(enum.Enum):
    """The result of filtering a message."""

    PASS = enum.auto()
    # It does not meet the requirements.
    DROP = enum.auto()
    # It is not a JSON object.
    UNREADABLE = enum.auto()
    # The field that must have a certain value is missing.
    INCOMPLETE = enum.auto()


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

    def judge(self, body: bytes) -> tuple[Verdict, bytes]:
        """Return the verdict, and the body to send if it is PASS."""
        try:
            document = read_object(body)
        except ValueError:
            return Verdict.UNREADABLE, body
        verdict = self._judge(document) if self._field else Verdict.PASS
        if verdict is Verdict.PASS and self._allowed:
            return verdict, write_object({name: document[name] for name in self._allowed if name in document})
        return verdict, body

    def _judge(self, document: dict[str, Any]) -> Verdict:
        if self._field not in document:
            return Verdict.INCOMPLETE if self._value else Verdict.DROP
        if not self._value or self._equals(document[self._field]):
            return Verdict.PASS
        return Verdict.DROP

    def _equals(self, value: object) -> bool:
        if isinstance(value, str):
            return value == self._value
        # Not isinstance: a bool is an int in Python, and no number in JSON.
        return self._number is not None and type(value) in (int, float) and float(value) == self._number  # type: ignore[arg-type]


def parse_number(text: str) -> float | None:
    """Return the number in the text, or None if the text is not a finite number."""
    try:
        if _HEXADECIMAL.fullmatch(text):
            return float.fromhex(text)
        number = float(text) if _DECIMAL.fullmatch(text) else math.inf
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object; `null` is an empty object, as in Go. Raises ValueError.

    As in Go, invalid UTF-8 and unpaired surrogates become U+FFFD. More than about 1000 levels are an error.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = _read_mended(body)
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return document


def _read_mended(body: bytes) -> Any:
    try:
        document = json.loads(body.decode("utf-8", "replace"), parse_constant=_refuse)
        text = json.dumps(document, ensure_ascii=False)
    except RecursionError as error:
        raise ValueError("too deep") from error
    return orjson.loads(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def write_object(document: dict[str, Any]) -> bytes:
    """Return the JSON as Go writes it: sorted by name, without spaces, integral numbers without a decimal point."""
    text = orjson.dumps(_whole(document), option=orjson.OPT_SORT_KEYS)
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text


def _whole(value: Any) -> Any:
    """Convert integral floats to int, at every level."""
    if isinstance(value, dict):
        return {name: _whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return list(map(_whole, value))
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _MAX_INT64
    return int(value) if is_whole else value
