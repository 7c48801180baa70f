"""Values of any JSON that another program sent. Pure.

A value that is missing, null or of another type counts as zero or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, get_type_hints

Statistics = dict[str, Any]
T = TypeVar("T")
# Returns an iterable of the same items, which may let other greenlets run between two of them.
Pace = Callable[[Iterable[Any]], Iterable[Any]]

# Sums of such numbers can be written as JSON, and read by every browser.
MOST_COUNT = 2**53


def value_in(document: Any, key: str) -> object:
    """Return the value of a key; None if it is missing, or the document is no object."""
    if isinstance(document, Mapping):
        return document.get(key)
    return None


def text_in(document: Any, key: str) -> str:
    value = value_in(document, key)
    return value if isinstance(value, str) else ""


def number_in(document: Any, key: str) -> int:
    value = value_in(document, key)
    if isinstance(value, int) and not isinstance(value, bool) and -MOST_COUNT <= value <= MOST_COUNT:
        return value
    return 0


def number_or_none(document: Any, key: str) -> int | None:
    """Return a number that may be missing or null."""
    if isinstance(value_in(document, key), int):
        return number_in(document, key)
    return None


def flag_in(document: Any, key: str) -> bool:
    return value_in(document, key) is True


def list_in(document: Any, key: str) -> list[Any]:
    value = value_in(document, key)
    if isinstance(value, list):
        return value
    return []


def rows_in(document: Any, key: str) -> list[Mapping[str, Any]]:
    return [row for row in list_in(document, key) if isinstance(row, Mapping)]


def texts_in(document: Any, key: str) -> list[str]:
    return [item for item in list_in(document, key) if isinstance(item, str)]


def fields_of(thing: object, *names: str) -> Statistics:
    """Return fields by their names."""
    return {name: getattr(thing, name) for name in names}


def read_as(kind: Callable[..., T], document: Any, **others: Any) -> T:
    """Return a named tuple or dataclass whose fields have the names of keys; `others` are the values of those that do not."""
    read = {name: read(document, name) for name, read in _readers_of(kind).items() if name not in others}
    return kind(**read, **others)


@cache
def _readers_of(kind: Callable[..., Any]) -> dict[str, Callable[[Any, str], object]]:
    by_type: dict[object, Callable[[Any, str], object]] = {
        str: text_in,
        int: number_in,
        bool: flag_in,
        int | None: number_or_none,
    }
    hints = get_type_hints(kind)
    return {name: by_type[hint] for name, hint in hints.items() if hint in by_type}
