"""Refused requests, and the arguments of a query. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

Query = Mapping[str, str]

_MOST_DIGITS = 12


class RequestRefused(Exception):
    """A refused request: the status, and the `message` of its JSON; `more` is the rest of the JSON."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.more = more


class NotThere(RequestRefused):
    """The requested thing is not known (yet)."""

    def __init__(self, message: str) -> None:
        super().__init__(404, message)


def number_of(query: Query, name: str, default: int, most: int, least: int = 0) -> int:
    """Return a whole number from `least` to `most` of a query. Raises RequestRefused."""
    text = query.get(name) or str(default)
    if not text.isdecimal() or len(text) > _MOST_DIGITS or not least <= int(text) <= most:
        raise RequestRefused(400, f"INVALID_ARG_{name.upper()}")
    return int(text)


def choice_of(query: Query, name: str, choices: Container[str], default: str = "") -> str:
    """Return an argument of a query that must be one of `choices`. Raises RequestRefused."""
    choice = query.get(name) or default
    if choice not in choices:
        raise RequestRefused(400, f"INVALID_ARG_{name.upper()}")
    return choice
