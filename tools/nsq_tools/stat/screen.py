"""The live table as lines of a given width and height. Pure; `live` draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from nsq_tools.stat.model import HISTORY_LENGTH, Failure
from nsq_tools.stat.rows import VALUES, Order, Row
from nsqd_py.cluster.statistics import MILLI

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
    Column("disk", 6, "disk"),
    Column("total", 6, "messages"),
)


def layout(width: int, longest_name: int) -> tuple[int, list[Column]]:
    """Return the width of names, and the columns that fit; they are not cut. The rest is for names, then for trends."""
    kept = list(_COLUMNS)
    while kept and width - _total(kept) < (_MIN_NAME_WIDTH if len(kept) > 1 else 1):
        kept.pop()
    rest = width - _total(kept)
    name_width = min(rest, max(longest_name, _MIN_NAME_WIDTH), _MAX_NAME_WIDTH)
    trend_width = min(_MIN_TREND_WIDTH + rest - name_width, _MAX_TREND_WIDTH)
    return name_width, [replace(column, width=trend_width) if column.title == TREND else column for column in kept]


def _total(kept: Sequence[Column]) -> int:
    return sum(column.width + GAP for column in kept)


# --- the screen

KEYS = ("q quit", "s next column", "r turn order", "arrows Page Home End scroll")
_MOST_FAILURES = 3


@dataclass(frozen=True, slots=True)
class VisibleRows:
    """The visible rows: `count` of `total`, from index `top` on."""

    top: int
    count: int
    total: int

    @classmethod
    def at(cls, top: int, count: int, total: int) -> VisibleRows:
        """Return the window nearest to `top` without empty lines below its rows."""
        return cls(max(0, min(top, total - count)), min(count, total), total)


@dataclass(frozen=True, slots=True)
class ScreenView:
    """The contents of the screen.

    rows       the selected rows, in `order`
    all_rows   the rows before the selection
    top        index of the first visible row
    """

    rows: Sequence[Row]
    all_rows: Sequence[Row]
    node_count: int
    failures: Sequence[Failure]
    order: Order
    interval: str
    clock: str
    top: int = 0


def draw(view: ScreenView, width: int, height: int) -> tuple[list[Text], VisibleRows]:
    """Return at most `height` lines of at most `width` characters, and their rows. A number that does not fit is left out."""
    head = [_title(view, width), _totals(view, width), *_failures(view, width)]
    foot = Text(fitted(KEYS, width), style=QUIET)
    room = max(height - len(head) - 2, 0)  # under the heading
    total = len(view.rows)
    seen = VisibleRows.at(view.top, total if total <= room else max(room - 1, 0), total)
    table = _table(view, width, room, seen)
    lines = [*head, *table, *(Text() for _ in range(room + 1 - len(table))), foot][:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines, seen


def fitted(parts: Sequence[str], width: int, gap: str = "   ") -> str:
    """Join the first parts that fit completely. Return an ellipsis if not even the first one fits."""
    text = ""
    for part in parts:
        longer = f"{text}{gap}{part}" if text else part
        if len(longer) > width:
            break
        text = longer
    return text or "…"


# --- above and below the table


def _title(view: ScreenView, width: int) -> Text:
    topics = sum(1 for row in view.all_rows if not row.name.channel)
    parts = (
        "nsq-stat",
        f"nsqd: {view.node_count}",
        f"topics: {topics}",
        f"channels: {len(view.all_rows) - topics}",
        f"every {view.interval}",
        f"by {view.order}",
        view.clock,
    )
    name, gap, rest = fitted(parts, width, "  ").partition("  ")
    return Text(name, style="bold").append(gap + rest, style="not bold")


def _totals(view: ScreenView, width: int) -> Text:
    """Return the totals of the selected rows. Incoming messages count once a topic, not once a channel."""
    incoming = sum(row.rates.messages for row in view.rows if row.rates and not row.name.channel) / MILLI
    done = sum(row.rates.finished for row in view.rows if row.rates and row.name.channel) / MILLI
    depth = sum(row.counts.depth for row in view.rows)
    in_flight = sum(row.counts.in_flight for row in view.rows)
    parts = (
        f"in {short_rate(max(incoming, 0))}/s",
        f"out {short_rate(max(done, 0))}/s",
        f"depth {short_number(depth)}",
        f"in flight {short_number(in_flight)}",
    )
    return Text(fitted(parts, width))


def _failures(view: ScreenView, width: int) -> list[Text]:
    lines = [Text(f"failed: {failure}", style=ALARMING) for failure in view.failures[:_MOST_FAILURES]]
    more = len(view.failures) - len(lines)
    return [*lines, *([Text(fitted([f"… {more} more failed"], width), style=ALARMING)] if more > 0 else [])]


# --- the table


def _table(view: ScreenView, width: int, room: int, seen: VisibleRows) -> list[Text]:
    """Return the heading and `room` lines: rows and, if some do not fit, a line with their number."""
    name_width, columns = layout(width, max((len(_full_name(row)) for row in view.rows), default=0))
    lines = [_heading(view.order, name_width, columns), *_rows(view, name_width, columns, seen)]
    if seen.count < seen.total:
        lines.append(Text(f"… {seen.total - seen.count} more", style=QUIET))
    elif not view.rows:
        lines.append(Text("no topic or channel" if view.node_count else "no nsqd", style=QUIET))
    return lines[: room + 1]


def _heading(order: Order, name_width: int, columns: Sequence[Column]) -> Text:
    line = Text(style="bold reverse")
    line.append(shorten("topic/channel", name_width).ljust(name_width), _underlined(order, "topic", "channel"))
    for column in columns:
        line.append(" " * GAP)
        line.append(column.title.rjust(column.width), _underlined(order, column.sorted_by))
    return line


def _underlined(order: Order, *columns: str) -> str:
    return "underline" if order.column in columns else ""


def _rows(view: ScreenView, name_width: int, columns: Sequence[Column], seen: VisibleRows) -> list[Text]:
    """Return the visible rows. In the order of topics, channels are indented below their topic."""
    lines = []
    topic_above = ""
    for row in view.rows[seen.top : seen.top + seen.count]:
        is_below = view.order.column == "topic" and row.name.topic == topic_above and row.name.channel
        name = f"  {row.name.channel}{_suffix(row)}" if is_below else _full_name(row)
        line = Text()
        line.append(shorten(name, name_width).ljust(name_width), "cyan" if row.is_paused else "")
        for column in columns:
            text, style = column.cell(row)
            if column.title == TREND:
                text, style = sparkline(row.depths, column.width), GROWING if row.depth_grows else "green"
            line.append(" " * GAP)
            line.append(text.rjust(column.width), style)
        lines.append(line)
        topic_above = row.name.topic
    return lines


def _full_name(row: Row) -> str:
    return f"{row.name}{_suffix(row)}"


def _suffix(row: Row) -> str:
    return f"{f' @{row.node}' if row.node else ''}{' (paused)' if row.is_paused else ''}"
