"""Choosing and sorting rows. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nsqd_py.settings.regex import BadExpression, compiled

if TYPE_CHECKING:  # --help and --version need the names of the columns, but not orjson, which the model imports
    from nsq_tools.stat.model import Name, Row
    from nsqd_py.cluster.figures import ChannelCounts, Rates


class BadPattern(ValueError):
    """A filter or the name of a column is invalid. The text is the reason."""


# --- filters

_Matches = Callable[[str], object]


class Filter:
    """Patterns of --filter. A row is shown if a pattern matches its topic, its channel or topic/channel.

    A pattern is a glob (`orders*`, `*/archive`), or a regular expression between slashes (`/^orders_[0-9]+$/`).
    Without patterns all rows are shown. Raises BadPattern.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = tuple(map(_compiled, patterns))

    def shows(self, name: Name) -> bool:
        if not self._patterns:
            return True
        texts = {name.topic, name.channel, str(name)}
        return any(matches(text) for matches in self._patterns for text in texts)


def _compiled(pattern: str) -> _Matches:
    if len(pattern) > 1 and pattern[0] == pattern[-1] == "/":
        try:
            search: _Matches = compiled(pattern[1:-1]).search
        except BadExpression as error:
            raise BadPattern(f"{pattern} is not a regular expression: {error}") from None
        return search
    return re.compile(fnmatch.translate(pattern)).match


# --- order


class _Key(Protocol):
    def __call__(self, row: Row, /) -> Any: ...


def _rate(read: Callable[[Rates], float]) -> _Key:
    return lambda row: read(row.rates) if row.rates else float("-inf")


def _count(read: Callable[[ChannelCounts], float]) -> _Key:
    return lambda row: read(row.counts)


# By the name of the column, in the order of the key `s`.
SORT_KEYS: dict[str, _Key] = {
    "topic": lambda row: row.name,
    "channel": lambda row: (row.name.channel, row.name.topic),
    "in": _rate(lambda rates: rates.messages),
    "out": _rate(lambda rates: rates.finished),
    "depth": _count(lambda counts: counts.depth),
    "growth": _rate(lambda rates: rates.growth),
    "in-flight": _count(lambda counts: counts.in_flight),
    "deferred": _count(lambda counts: counts.deferred),
    "requeued": _count(lambda counts: counts.requeued),
    "timed-out": _count(lambda counts: counts.timed_out),
    "clients": _count(lambda counts: counts.clients),
    "disk": _count(lambda counts: counts.backend_depth),
    "messages": _count(lambda counts: counts.messages),
    "age": lambda row: row.oldest_age_s or 0.0,
    "drain": lambda row: float("inf") if row.drain_s is None else row.drain_s,
}
_FROM_A_TO_Z = frozenset(("topic", "channel"))


class Order(NamedTuple):
    """The order by a column: names from A to Z, numbers from the largest. `is_turned` reverses it."""

    column: str = "topic"
    is_turned: bool = False

    @classmethod
    def parse(cls, text: str) -> Order:
        """Parse the name of a column; a `-` before it reverses the order. Raises BadPattern."""
        column = text.removeprefix("-")
        if column not in SORT_KEYS:
            raise BadPattern(f"no column {text!r}; there are {', '.join(SORT_KEYS)}")
        return cls(column, text.startswith("-"))

    def __str__(self) -> str:
        return f"{'-' if self.is_turned else ''}{self.column}"

    @property
    def next(self) -> Order:
        columns = list(SORT_KEYS)
        return Order(columns[(columns.index(self.column) + 1) % len(columns)])

    @property
    def turned(self) -> Order:
        return Order(self.column, not self.is_turned)

    def arrange(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows in this order. The sort is stable."""
        downwards = (self.column not in _FROM_A_TO_Z) != self.is_turned
        return sorted(rows, key=SORT_KEYS[self.column], reverse=downwards)


def select(rows: Iterable[Row], wanted: Filter, order: Order) -> list[Row]:
    return order.arrange([row for row in rows if wanted.shows(row.name)])
