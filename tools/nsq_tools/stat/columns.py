"""The columns of the live table: their cells, and fitting them to a width. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nsq_tools.stat.model import HISTORY_LENGTH
from nsq_tools.stat.rows import VALUES, Row

TREND = "trend"
GAP = 1
_MIN_NAME_WIDTH = 14
_MAX_NAME_WIDTH = 60
_MIN_TREND_WIDTH = 8
_MAX_TREND_WIDTH = HISTORY_LENGTH

QUIET = "dim"
GROWING = "yellow"
ALARMING = "bold red"

_BARS = "▁▂▃▄▅▆▇█"


# --- cells


def short_number(value: float) -> str:
    """Return the number in at most five characters: 9999, 12.3k, 456k, 7.8M."""
    if abs(value) < 10_000:
        return str(int(value))
    for unit in "kMGTP":
        value /= 1000
        if abs(value) < 99.95:
            return f"{value:.1f}{unit}"
        if abs(value) < 999.5:
            return f"{value:.0f}{unit}"
    return f"{value / 1000:.1f}E"  # the largest 64-bit count is 9.2E


def short_rate(value: float) -> str:
    """Like `short_number`, but with one decimal for small numbers: 0, 0.5, 12."""
    return f"{value:.1f}" if 0 < abs(value) < 9.95 else short_number(round(value))


def short_span(seconds: float) -> str:
    """Return a time span in at most five characters: 59s, 59m, 47h, 365d."""
    for unit_s, name, most in ((1, "s", 60), (60, "m", 60), (3600, "h", 48)):
        if seconds < unit_s * most:
            return f"{int(seconds / unit_s)}{name}"
    return f"{min(int(seconds / 86400), 9999)}d"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last `width` values as bars, scaled to the highest of them, with the latest at the right."""
    shown = values[-width:]
    highest = max(shown, default=0)
    if highest <= 0:
        return (_BARS[0] * len(shown)).rjust(width)
    steps = len(_BARS) - 1
    # Rounded up, so that the lowest bar means exactly 0.
    return "".join(_BARS[-int(-max(value, 0) * steps // highest)] for value in shown).rjust(width)


def shorten(text: str, width: int) -> str:
    """Replace the middle of a long text with an ellipsis, because names differ at both ends."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


# --- columns

Cell = tuple[str, str]  # a text and its style


@dataclass(frozen=True, slots=True)
class Column:
    """title: the heading. width: of the cells. sorted_by: its name in --sort. is_of_channels: empty for a topic."""

    title: str
    width: int
    sorted_by: str
    shorten: Callable[[float], str] = short_number
    is_of_channels: bool = False

    def cell(self, row: Row) -> Cell:
        value = VALUES[self.sorted_by](row)
        if self.is_of_channels and not row.name.channel:
            return "", ""
        if value is None or (self.sorted_by == "drain" and not row.counts.depth):
            return "-", QUIET
        if value == math.inf:
            return "never", GROWING
        if self.sorted_by == "timed-out" and row.has_timed_out:
            return self.shorten(value), ALARMING
        if self.sorted_by == "depth" and row.depth_grows:
            return self.shorten(value), GROWING
        # The counts of one answer are not read at the same instant, so a rate can be negative for a moment.
        return self.shorten(max(value, 0)), "" if value or self.shorten is short_span else QUIET


# From left to right. On a narrow terminal, the columns with the highest numbers are dropped first.
_COLUMNS: tuple[tuple[int, Column], ...] = (
    (1, Column("in/s", 6, "in", short_rate)),
    (2, Column("out/s", 6, "out", short_rate, is_of_channels=True)),
    (0, Column("depth", 6, "depth")),
    (4, Column("age", 5, "age", short_span)),
    (5, Column(TREND, _MIN_TREND_WIDTH, "growth")),
    (6, Column("flight", 6, "in-flight", is_of_channels=True)),
    (7, Column("defer", 5, "deferred", is_of_channels=True)),
    (8, Column("requ", 5, "requeued", is_of_channels=True)),
    (3, Column("t-out", 5, "timed-out", is_of_channels=True)),
    (9, Column("conn", 5, "clients", is_of_channels=True)),
    (10, Column("drain", 5, "drain", short_span, is_of_channels=True)),
    (11, Column("disk", 6, "disk")),
    (12, Column("total", 6, "messages")),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that fit into a width: the name, the node (width 0: none), then `columns`."""

    name_width: int
    node_width: int
    columns: tuple[Column, ...]
    trend_width: int

    def width_of(self, column: Column) -> int:
        return self.trend_width if column.title == TREND else column.width


def layout(width: int, longest_name: int, longest_node: int = 0) -> Layout:
    """Drop columns until the others fit, and give the remaining width to names, then to trends.

    If the last column does not fit, the node is dropped, then the name is shortened. If no width is left for the name,
    only the name is shown. So a figure is never truncated.
    """
    node_width = longest_node + GAP if longest_node else 0
    kept = list(_COLUMNS)
    while len(kept) > 1 and _MIN_NAME_WIDTH + node_width + _total(kept) > width:
        kept.remove(max(kept, key=lambda numbered: numbered[0]))
    if _MIN_NAME_WIDTH + node_width + _total(kept) > width:
        node_width = 0
    name_width = min(_MIN_NAME_WIDTH, width - node_width - _total(kept))
    if name_width < 1:
        return Layout(max(width, 0), 0, (), 0)
    rest = max(width - name_width - node_width - _total(kept), 0)
    more_name = min(rest, max(longest_name, name_width) - name_width, _MAX_NAME_WIDTH - name_width)
    more_trend = min(rest - more_name, _MAX_TREND_WIDTH - _MIN_TREND_WIDTH)
    columns = tuple(column for _, column in kept)
    return Layout(name_width + more_name, node_width, columns, _MIN_TREND_WIDTH + more_trend)


def _total(kept: Sequence[tuple[int, Column]]) -> int:
    return sum(column.width + GAP for _, column in kept)
