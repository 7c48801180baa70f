"""A small language for values in JSON: `$.customer.id = 42`. Pure.

    $.order.total         a member; `$.` may be left out
    $["first name"]       a member whose name has other characters than letters, digits, - and _
    $.items[0].sku        an element, the last one with [-1]; $.items[*].sku is that of any element, and *
                          also stands for any member
    path = value          also != < <= > >=, and ~ for a text that contains another one
    path                  true if the path exists, whatever its value is

A value is JSON (`42`, `"paid"`, `true`, `null`), or a word without quotes, which is a text. Numbers compare
with numbers and texts with texts; other pairs are only unequal. If a path with * leads to several values, one
of them has to fit.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nsqd_py.settings.regex import path_steps, values_at

MOST_CHARACTERS = 1000

_OPERATION = re.compile(r"\s*(!=|<=|>=|==?|<|>|~)\s*(.*)", re.DOTALL)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class BadFilter(ValueError):
    """A filter that cannot be used; `name` is that of its field, str(error) says why."""

    def __init__(self, reason: str, name: str = "path") -> None:
        super().__init__(reason)
        self.name = name


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path, and the comparison that one of its values must pass."""

    steps: tuple[object, ...]
    compare: Callable[[Any], bool]

    def matches(self, document: Any) -> bool:
        """True if the document has a value at the path that fits."""
        return any(map(self.compare, values_at(document, self.steps)))


def parse_json_path(text: str) -> JsonPath:
    """Raises BadFilter."""
    if len(text) > MOST_CHARACTERS:
        raise BadFilter(f"a path has at most {MOST_CHARACTERS} characters")
    text = text.strip()
    if not text.startswith(("$", ".", "[", "*")):
        text = f".{text}"
    try:
        steps, end = path_steps(text, text.startswith("$"))
    except ValueError as error:
        raise BadFilter(str(error)) from error
    rest = text[end:]
    if not steps and not text.startswith("$"):
        raise BadFilter("a path begins with $ or a name, such as $.customer.id")
    if not rest.strip():
        return JsonPath(steps, lambda value: True)
    operation = _OPERATION.fullmatch(rest)
    if operation is None:
        raise BadFilter(f"expected .name, [0], [*], or a comparison such as = 42 at {rest[:40]!r}")
    return JsonPath(steps, _comparison(operation[1], operation[2].strip()))


def _comparison(sign: str, text: str) -> Callable[[Any], bool]:
    if not text:
        raise BadFilter(f"there is no value behind {sign}")
    expected = _literal(text)
    if sign == "~":
        part = expected if isinstance(expected, str) else text
        return lambda value: isinstance(value, str) and part in value
    if sign == "!=":
        return lambda value: not _is_equal(value, expected)
    order = _ORDERS.get(sign)
    if order:
        return lambda value: _is_comparable(value, expected) and order(value, expected)
    return lambda value: _is_equal(value, expected)


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_equal(value: Any, expected: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    return bool(value == expected) and isinstance(value, bool) == isinstance(expected, bool)


def _is_comparable(value: Any, expected: Any) -> bool:
    if isinstance(value, bool) or isinstance(expected, bool):
        return False
    return any(isinstance(value, kind) and isinstance(expected, kind) for kind in (int | float, str))
