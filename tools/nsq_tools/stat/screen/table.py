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
# The letter of a problem, which is left out where it would replace a number.
_MARK_WIDTH = 2
_MIN_WIDTH_WITH_MARKS = 24

Cell = tuple[str, str]  # a text and its style
Severities = Mapping[Name, str]
Lines = list[Text]


def quiet(text: str) -> Text:
    return Text(text, style=QUIET)


@dataclass(frozen=True, slots=True)
class Column:
    """title: the heading. width: of the cells. sorted_by: its name in --sort.

    only_of  "channel" if it is empty for topics, "topic" if it is empty for channels
    """

    title: str
    width: int
    sorted_by: str
    shorten: Callable[[float], str] = short_number
    only_of: str = ""

    def cell(self, row: Row) -> Cell:
        if self.title == TREND:
            return sparkline(row.depths, self.width), GROWING if row.depth_grows else "green"
        value = LIVE_VALUES[self.sorted_by](row)
        if self.only_of not in ("", "channel" if row.name.channel else "topic"):
            return "", ""
        if value is None or (self.sorted_by == "drain" and not row.counts.depth):
            return "-", QUIET
        if value == math.inf:
            return "never", GROWING
        style = "" if value or self.shorten is short_span else QUIET
        if self.sorted_by == "timed-out" and row.rates and row.rates.timed_out > 0:
            style = ALARMING
        elif self.sorted_by == "depth" and row.depth_grows:
            style = GROWING
        # The counts of one answer are not read at the same instant, so a rate can be negative for a moment.
        return self.shorten(max(value, 0)), style


# The most important first: a narrow terminal shows fewer of them.
_COLUMNS = (
    Column("depth", 6, "depth"),
    Column("in/s", 6, "in", short_rate),
    Column("out/s", 6, "out", short_rate, only_of="channel"),
    Column("t-out", 5, "timed-out", only_of="channel"),
    Column("age", 5, "age", short_span),
    Column(TREND, _MIN_TREND_WIDTH, "growth"),
    Column("flight", 6, "in-flight", only_of="channel"),
    Column("defer", 5, "deferred", only_of="channel"),
    Column("requ", 5, "requeued", only_of="channel"),
    Column("conn", 5, "clients", only_of="channel"),
    Column("drain", 5, "drain", short_span, only_of="channel"),
    Column("disk", 7, "disk", short_bytes, only_of="topic"),
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
        fitting = list(_COLUMNS)
        while fitting and width - _total(fitting) < (_MIN_NAME_WIDTH if len(fitting) > 1 else 1):
            fitting.pop()
        rest = width - _total(fitting)
        name_width = min(rest, max(longest_name, _MIN_NAME_WIDTH), _MAX_NAME_WIDTH)
        most = max(_MIN_TREND_WIDTH, min(_MAX_TREND_WIDTH, width // _TREND_PART))
        trend_width = min(_MIN_TREND_WIDTH + rest - name_width, most)
        columns = [
            replace(column, width=trend_width) if column.title == TREND else column for column in fitting
        ]
        return cls(mark_width, name_width, columns)

    def line(self, mark: str, name: Cell, cells: Sequence[Cell], style: str) -> Text:
        line = Text(mark[: self.mark_width].ljust(self.mark_width), style=style)
        line.append(shorten(name[0], self.name_width).ljust(self.name_width), name[1])
        for column, (text, its_style) in zip(self.columns, cells, strict=True):
            line.append(" " * GAP)
            line.append(text.rjust(column.width), its_style)
        return line


def _total(fitting: Sequence[Column]) -> int:
    return sum(column.width + GAP for column in fitting)


def layout_of(rows: Iterable[Row], width: int) -> Layout:
    return Layout.of(width, max((len(f"{row.name}{_suffix(row)}") for row in rows), default=0))


def heading(layout: Layout, order: Order) -> Text:
    def underlined(*columns: str) -> str:
        return "underline" if order.column in columns else ""

    titles = [(column.title, underlined(column.sorted_by)) for column in layout.columns]
    return layout.line("", ("topic/channel", underlined("topic", "channel")), titles, "bold reverse")


def lines_of(rows: Sequence[Row], layout: Layout, severities: Severities, *, is_by_topic: bool) -> Lines:
    """Return a line for each row. If `is_by_topic`, channels are indented below their topic."""
    lines = []
    topic_above = ""
    for row in rows:
        is_below = is_by_topic and row.name.topic == topic_above and row.name.channel
        name = f"  {row.name.channel}" if is_below else str(row.name)
        cells = [column.cell(row) for column in layout.columns]
        severity = severities.get(row.name, "")
        lines.append(
            layout.line(MARKS.get(severity, ""), (name + _suffix(row), ""), cells, STYLES.get(severity, ""))
        )
        topic_above = row.name.topic
    return lines


def select(line: Text, width: int) -> None:
    """Mark a line as the selected one, over the whole width."""
    line.truncate(width, overflow="ellipsis", pad=True)
    line.stylize("reverse")


def _suffix(row: Row) -> str:
    return f"{f' @{row.node}' if row.node else ''}{' (paused)' if row.is_paused else ''}"
