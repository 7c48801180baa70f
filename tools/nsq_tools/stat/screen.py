"""The live table as lines of a given width and height. Pure; `live` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from nsq_tools.stat.columns import (
    ALARMING,
    GAP,
    GROWING,
    QUIET,
    TREND,
    Layout,
    layout,
    short_number,
    short_rate,
    shorten,
    sparkline,
)
from nsq_tools.stat.model import Failure
from nsq_tools.stat.rows import Order, Row
from nsqd_py.cluster.statistics import MILLI

KEYS = ("q quit", "s next column", "r turn order", "arrows Page Home End scroll")
_MOST_FAILURES = 3
_SHORT_HEIGHT = 10  # below it, rows take the lines of keys and totals


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

    @property
    def below(self) -> int:
        return self.total - self.top - self.count


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
    head, foot, room = _frame(view, width, height)
    total = len(view.rows)
    seen = VisibleRows.at(view.top, total if total <= room else max(room - 1, 0), total)
    table = _table(view, width, room, seen)
    lines = [*head, *table, *(Text() for _ in range(room + 1 - len(table))), *foot][:height]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines, seen


def _frame(view: ScreenView, width: int, height: int) -> tuple[list[Text], list[Text], int]:
    """Return the lines above and below the table, and the number of lines left under its heading."""
    is_short = height < _SHORT_HEIGHT
    head = [_title(view, width), *([] if is_short else [_totals(view, width)])]
    head += _failures(view, width)
    foot = [] if is_short else [Text(fitted(KEYS, width), style=QUIET)]
    return head, foot, max(height - len(head) - 1 - len(foot), 0)


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
        _number(view.node_count, "nsqd", plural="nsqd"),
        _number(topics, "topic"),
        _number(len(view.all_rows) - topics, "channel"),
        f"every {view.interval}",
        f"by {view.order}",
        view.clock,
    )
    name, gap, rest = fitted(parts, width, "  ").partition("  ")
    return Text(name, style="bold").append(gap + rest, style="not bold")


def _number(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


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
    longest_name = max((len(_full_name(row)) for row in view.rows), default=0)
    plan = layout(width, longest_name, max((len(row.node) for row in view.rows), default=0))
    lines = [_heading(view.order, plan), *_rows(view, plan, seen)]
    if seen.count < seen.total:
        lines.append(Text(fitted(_others(seen), width, " "), style=QUIET))
    elif not view.rows:
        lines.append(Text(_emptiness(view), style=QUIET))
    return lines[: room + 1]


def _others(seen: VisibleRows) -> list[str]:
    """Return the number of hidden rows, as text."""
    if not seen.top:
        return [f"… {seen.below} more"]
    return [f"… {seen.top} above", *([f"and {seen.below} below"] if seen.below else [])]


def _emptiness(view: ScreenView) -> str:
    if view.all_rows:
        return "no topic or channel matches"
    return "no topics yet" if view.node_count else "no nsqd yet"


def _heading(order: Order, plan: Layout) -> Text:
    line = Text(style="bold reverse")
    title = shorten("topic/channel", plan.name_width).ljust(plan.name_width)
    line.append(title, _underlined(order, "topic", "channel"))
    if plan.node_width:
        line.append(" " * GAP + "nsqd".ljust(plan.node_width - GAP))
    for column in plan.columns:
        line.append(" " * GAP)
        line.append(column.title.rjust(plan.width_of(column)), _underlined(order, column.sorted_by))
    return line


def _underlined(order: Order, *columns: str) -> str:
    return "underline" if order.column in columns else ""


def _rows(view: ScreenView, plan: Layout, seen: VisibleRows) -> list[Text]:
    lines = []
    topic_above = ""
    for row in view.rows[seen.top : seen.top + seen.count]:
        is_below = view.order.column == "topic" and row.name.topic == topic_above
        lines.append(_line(row, plan, is_below=is_below))
        topic_above = row.name.topic
    return lines


def _line(row: Row, plan: Layout, *, is_below: bool) -> Text:
    line = Text()
    name = f"  {row.name.channel}{_paused(row)}" if is_below and row.name.channel else _full_name(row)
    line.append(shorten(name, plan.name_width).ljust(plan.name_width), "cyan" if row.is_paused else "")
    if plan.node_width:
        line.append(" " * GAP + row.node.ljust(plan.node_width - GAP))
    for column in plan.columns:
        text, style = column.cell(row)
        width = plan.width_of(column)
        if column.title == TREND:
            text, style = sparkline(row.depths, width), GROWING if row.depth_grows else "green"
        line.append(" " * GAP)
        line.append(text.rjust(width), style)
    return line


def _full_name(row: Row) -> str:
    return f"{row.name}{_paused(row)}"


def _paused(row: Row) -> str:
    return " (paused)" if row.is_paused else ""
