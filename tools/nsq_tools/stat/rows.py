"""Rows of topics and channels: their values, selection and order. Pure."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from nsqd_py.cluster.counts import ChannelCounts, Rates
from nsqd_py.cluster.statistics import MILLI
from nsqd_py.settings.regex import BadExpression, compiled

# Of filters: a regular expression, and what is a pattern where one types.
_EXPRESSION = re.compile("/(.*)/", re.DOTALL)
_PATTERN = re.compile(r".*[*?\[].*|/.*/", re.DOTALL)
# Columns that are sorted from A to Z; the others from the largest.
_FROM_A_TO_Z = ("topic", "channel")

Value = Callable[[Any], Any]

# The values of a row by the names of --sort, in the order of the key `s`. None is a value that is not known.
VALUES: dict[str, Value] = {
    "topic": attrgetter("name"),
    "channel": attrgetter("name.channel", "name.topic"),
    "in": lambda row: row.rate("messages"),
    "out": lambda row: row.rate("finished"),
    "depth": attrgetter("counts.depth"),
    "growth": lambda row: row.rate("growth"),
    "in-flight": attrgetter("counts.in_flight"),
    "deferred": attrgetter("counts.deferred"),
    "requeued": attrgetter("counts.requeued"),
    "timed-out": attrgetter("counts.timed_out"),
    "clients": attrgetter("counts.clients"),
    "disk": attrgetter("counts.backend_depth"),
    "messages": attrgetter("counts.messages"),
    "age": attrgetter("oldest_age_s"),
    "drain": lambda row: None if row.rates is None else row.drain_s,
}
# Those of the live table, in which "disk" is the size of the log. In Go's reports it counts messages.
LIVE_VALUES = VALUES | {"disk": attrgetter("log_bytes")}


class Name(NamedTuple):
    """A topic, or one of its channels; `channel` is empty for the topic itself. Without control characters."""

    topic: str
    channel: str = ""

    def __str__(self) -> str:
        if self.channel:
            return f"{self.topic}/{self.channel}"
        return self.topic


@dataclass(frozen=True, slots=True)
class Row:
    """A topic or a channel, over all nsqds (`node` is empty) or on one.

    rates   in thousandths per second; None until an nsqd has answered twice
    depths  depths in the latest rounds, the oldest first
    oldest_age_s  time since the oldest waiting message was published; None if none waits, or it is not known
    drain_s       time until nothing waits, at the rate of the latest rounds; infinite if that is never
    log_bytes     bytes of the topic's log; None for a channel, and if an nsqd does not report them
    """

    name: Name
    node: str
    counts: ChannelCounts
    rates: Rates | None
    is_paused: bool
    depths: tuple[float, ...] = ()
    depth_grows: bool = False
    oldest_age_s: float | None = None
    drain_s: float = math.inf
    log_bytes: int | None = None

    def rate(self, name: str) -> float | None:
        """Return a rate a second by its name in Rates; None if it is not known."""
        if self.rates is None:
            return None
        rate: int = getattr(self.rates, name)
        if rate % MILLI:
            return rate / MILLI
        return rate // MILLI


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
    expression = _EXPRESSION.fullmatch(pattern)
    if expression is None:
        return re.compile(fnmatch.translate(pattern)).match
    try:
        search: _Matches = compiled(expression[1]).search
    except BadExpression as error:
        raise BadPattern(f"{pattern} is not a regular expression: {error}") from None
    return search


class TypedFilter:
    """The text that was typed after `/`: a part of the topic, the channel or topic/channel, in any case of letters.

    With `*`, `?` or `[`, or between slashes, it is a pattern as those of --filter.
    """

    def __init__(self, text: str) -> None:
        self._part = text.lower()
        self._pattern: Filter | None = None
        if _PATTERN.fullmatch(text):
            with suppress(BadPattern):  # it is still being typed
                self._pattern = Filter([text])

    def shows(self, name: Name) -> bool:
        if self._pattern is not None:
            return self._pattern.shows(name)
        return self._part in str(name).lower()


# --- values and order


class Order(NamedTuple):
    """The order by a column: names from A to Z, numbers from the largest. `is_turned` reverses it."""

    column: str = "topic"
    is_turned: bool = False

    @classmethod
    def parse(cls, text: str) -> Order:
        """Parse the name of a column; a `-` before it reverses the order. Raises BadPattern."""
        column = text.removeprefix("-")
        if column not in VALUES:
            raise BadPattern(f"no column {text!r}; there are {', '.join(VALUES)}")
        return cls(column, text.startswith("-"))

    def __str__(self) -> str:
        return f"{'-' if self.is_turned else ''}{self.column}"

    @property
    def next(self) -> Order:
        columns = list(VALUES)
        return Order(columns[(columns.index(self.column) + 1) % len(columns)])

    @property
    def turned(self) -> Order:
        return self._replace(is_turned=not self.is_turned)

    def arrange(self, rows: Iterable[Row], values: Mapping[str, Value] = VALUES) -> list[Row]:
        """Return the rows in this order. The sort is stable."""
        downwards = (self.column not in _FROM_A_TO_Z) != self.is_turned
        value_of = values[self.column]

        def rank(row: Row) -> tuple[bool, Any]:
            value = value_of(row)
            return value is not None, value

        return sorted(rows, key=rank, reverse=downwards)


def select(rows: Iterable[Row], chosen: Filter, order: Order) -> list[Row]:
    return order.arrange(row for row in rows if chosen.shows(row.name))


def select_live(rows: Iterable[Row], chosen: Filter, typed: str, order: Order) -> list[Row]:
    """Return the rows of the live table. `typed` is the text of its own filter."""
    its_own = TypedFilter(typed)
    return order.arrange(
        (row for row in rows if chosen.shows(row.name) and its_own.shows(row.name)), LIVE_VALUES
    )
