"""The table of topics and channels: its columns, and rows as lines of a given width. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from nsq_tools.stat.cells import (
    ALARMING,
    GROWING,
    MARKS,
    QUIET,
    STYLES,
    short_bytes,
    short_number,
    short_rate,
    short_span,
    shorten,
    sparkline,
)
from nsq_tools.stat.model import HISTORY_LENGTH
from nsq_tools.stat.rows import LIVE_VALUES, Name, Order, Row

TREND = "trend"
GAP = 1
_MIN_NAME_WIDTH = 14
_MAX_NAME_WIDTH = 60
_MIN_TREND_WIDTH = 8
_MAX_TREND_WIDTH = HISTORY_LENGTH
# The trend takes at most this part of the width.
_TREND_PART = 3
# The letter of a problem, which is left out where it would take the place of a number.
_MARK_WIDTH = 2
_MIN_WIDTH_WITH_MARKS = 24

Cell = tuple[str, str]  # a text and its style
Severities = Mapping[Name, str]


@dataclass(frozen=True, slots=True)
class Column:
    """title: the heading. width: of the cells. sorted_by: its name in --sort.

    is_of_channels  empty for a topic
    is_of_topics    empty for a channel
    """

    title: str
    width: int
    sorted_by: str
    shorten: Callable[[float], str] = short_number
    is_of_channels: bool = False
    is_of_topics: bool = False

    def cell(self, row: Row) -> Cell:
        value = LIVE_VALUES[self.sorted_by](row)
        is_empty = self.is_of_topics if row.name.channel else self.is_of_channels
        if is_empty:
            return "", ""
        if value is None or (self.sorted_by == "drain" and not row.counts.depth):
            return "-", QUIET
        if value == math.inf:
            return "never", GROWING
        if self.sorted_by == "timed-out" and row.rates and row.rates.timed_out > 0:
            return self.shorten(value), ALARMING
        if self.sorted_by == "depth" and row.depth_grows:
            return self.shorten(value), GROWING
        # The counts of one answer are not read at the same instant, so a rate can be negative for a moment.
        return self.shorten(max(value, 0)), "" if value or self.shorten is short_span else QUIET


# The most important first: a narrow terminal shows fewer of them.
_COLUMNS = (
    Column("depth", 6, "depth"),
    Column("in/s", 6, "in", short_rate),
    Column("out/s", 6, "out", short_rate, is_of_channels=True),
    Column("t-out", 5, "timed-out", is_of_channels=True),
    Column("age", 5, "age", short_span),
    Column(TREND, _MIN_TREND_WIDTH, "growth"),
    Column("flight", 6, "in-flight", is_of_channels=True),
    Column("defer", 5, "deferred", is_of_channels=True),
    Column("requ", 5, "requeued", is_of_channels=True),
    Column("conn", 5, "clients", is_of_channels=True),
    Column("drain", 5, "drain", short_span, is_of_channels=True),
    Column("disk", 7, "disk", short_bytes, is_of_topics=True),
    Column("total", 6, "messages"),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that fit into a width, and the widths of marks and names."""

    mark_width: int
    name_width: int
    columns: Sequence[Column]

    @classmethod
    def of(cls, width: int, longest_name: int) -> Layout:
        """Numbers are not cut. The rest of the width is for names, then for trends."""
        mark_width = _MARK_WIDTH if width >= _MIN_WIDTH_WITH_MARKS else 0
        width -= mark_width
        kept = list(_COLUMNS)
        while kept and width - _total(kept) < (_MIN_NAME_WIDTH if len(kept) > 1 else 1):
            kept.pop()
        rest = width - _total(kept)
        name_width = min(rest, max(longest_name, _MIN_NAME_WIDTH), _MAX_NAME_WIDTH)
        most = max(_MIN_TREND_WIDTH, min(_MAX_TREND_WIDTH, width // _TREND_PART))
        trend_width = min(_MIN_TREND_WIDTH + rest - name_width, most)
        columns = [replace(column, width=trend_width) if column.title == TREND else column for column in kept]
        return cls(mark_width, name_width, columns)


def _total(kept: Sequence[Column]) -> int:
    return sum(column.width + GAP for column in kept)


def layout_of(rows: Iterable[Row], width: int) -> Layout:
    return Layout.of(width, max((len(_full_name(row)) for row in rows), default=0))


def heading(layout: Layout, order: Order) -> Text:
    line = Text(" " * layout.mark_width, style="bold reverse")
    line.append(shorten("topic/channel", layout.name_width).ljust(layout.name_width), _underlined(order, "topic", "channel"))
    for column in layout.columns:
        line.append(" " * GAP)
        line.append(column.title.rjust(column.width), _underlined(order, column.sorted_by))
    return line


def _underlined(order: Order, *columns: str) -> str:
    return "underline" if order.column in columns else ""


def lines_of(rows: Sequence[Row], layout: Layout, severities: Severities, *, is_by_topic: bool) -> list[Text]:
    """Return a line for each row. If `is_by_topic`, channels are indented below their topic."""
    lines = []
    topic_above = ""
    for row in rows:
        is_below = is_by_topic and row.name.topic == topic_above and row.name.channel
        name = f"  {row.name.channel}{_suffix(row)}" if is_below else _full_name(row)
        lines.append(_line(row, name, layout, severities.get(row.name, "")))
        topic_above = row.name.topic
    return lines


def _line(row: Row, name: str, layout: Layout, severity: str) -> Text:
    line = Text(style=STYLES.get(severity, ""))
    line.append(MARKS.get(severity, "")[: layout.mark_width].ljust(layout.mark_width))
    line.append(shorten(name, layout.name_width).ljust(layout.name_width))
    for column in layout.columns:
        text, style = column.cell(row)
        if column.title == TREND:
            text, style = sparkline(row.depths, column.width), GROWING if row.depth_grows else "green"
        line.append(" " * GAP)
        line.append(text.rjust(column.width), style)
    return line


def select(line: Text, width: int) -> None:
    """Mark a line as the selected one, over the whole width."""
    line.truncate(width, overflow="ellipsis", pad=True)
    line.stylize("reverse")


def _full_name(row: Row) -> str:
    return f"{row.name}{_suffix(row)}"


def _suffix(row: Row) -> str:
    return f"{f' @{row.node}' if row.node else ''}{' (paused)' if row.is_paused else ''}"
