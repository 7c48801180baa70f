"""Which JSON messages pass, and which of their fields, by the rules of Go's nsq_to_nsq. Pure."""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import orjson

# As in the source of a Go program.
_DIGITS = r"\d+(?:_\d+)*"
_DECIMAL = re.compile(rf"[+-]?({_DIGITS}\.?({_DIGITS})?|\.{_DIGITS})([eE][+-]?{_DIGITS})?", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX]([\da-fA-F]+\.?[\da-fA-F]*|\.[\da-fA-F]+)[pP][+-]?\d+", re.ASCII)
_MAX_INT64 = 2**63
# What Go's JSON writes in another way than orjson; all of these occur in strings only.
_ESCAPES = tuple((character.encode(), b"\\u%04x" % ord(character)) for character in "&<>\u2028\u2029")


class Verdict(enum.Enum):
    """What becomes of a message."""

    PASS = enum.auto()
    # It has not what is required.
    DROP = enum.auto()
    # It is no JSON object.
    UNREADABLE = enum.auto()
    # The field whose value is required is not there.
    INCOMPLETE = enum.auto()


class JsonFilter:
    """Lets JSON objects pass that have a field (with a value), and of each only the fields of an allow-list.

    A required value is compared with strings as text, and with numbers as a floating-point number where it is one;
    true, false, null, lists and objects equal no value.
    """

    def __init__(self, required_field: str, required_value: str, allowed_fields: Sequence[str]) -> None:
        """What is empty is not asked for."""
        self._field = required_field
        self._value = required_value
        self._number = parse_number(required_value)
        self._allowed = tuple(allowed_fields)

    @property
    def is_on(self) -> bool:
        return bool(self._field or self._allowed)

    def judge(self, body: bytes) -> tuple[Verdict, bytes]:
        """What becomes of the message, and the body to send where it passes."""
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
    """The number that `text` is, with a finite value; None where it is none."""
    try:
        if _HEXADECIMAL.fullmatch(text):
            return float.fromhex(text)
        number = float(text) if _DECIMAL.fullmatch(text) else math.inf
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object; `null` is an empty one, as Go reads it. Raises ValueError.

    As in Go, what is no UTF-8 and no whole pair of surrogates becomes U+FFFD. Deeper than about 1000 levels it is not
    read.
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
    raise ValueError(f"{word} is no JSON")


def write_object(document: dict[str, Any]) -> bytes:
    """As Go writes it: sorted by name, without spaces, whole numbers without a point."""
    text = orjson.dumps(_whole(document), option=orjson.OPT_SORT_KEYS)
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text


def _whole(value: Any) -> Any:
    """With whole numbers as such, wherever they are in it."""
    if isinstance(value, dict):
        return {name: _whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return list(map(_whole, value))
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _MAX_INT64
    return int(value) if is_whole else value
