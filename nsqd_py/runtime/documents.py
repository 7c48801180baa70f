"""Checks of documents that were read from a file, and that somebody else may have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields as fields_of
from typing import Any, TypeVar

T = TypeVar("T")

# What decoding raises if the content is not the expected one.
BAD_CONTENT = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


def describe(error: Exception) -> str:
    """Return one line about an error of `BAD_CONTENT`."""
    return f"{type(error).__name__}: {str(error)[:100]!a}"


def checked_number(value: object) -> int:
    """Return a number of an epoch or a message, a time in ns, or an offset. Raises ValueError if it is none."""
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!a:.50} is no number from 0 to 2**63 - 1")
    return value


def decode_fields(make: Callable[..., T], fields: Mapping[str, Any]) -> T:
    """Return a dataclass with these fields. Raises BAD_CONTENT, also if one has another type than the declared one."""
    made = make(**fields)
    for field in fields_of(made):  # type: ignore[arg-type]
        value = getattr(made, field.name)
        if field.type in ("int", "bool", "str") and type(value).__name__ != field.type:
            raise TypeError(f"{field.name} must be {field.type}, got {value!a:.50}")
        if isinstance(value, int):
            checked_number(value)
        elif isinstance(value, str):
            value.encode()  # a lone surrogate fails
    return made
