"""The screen: a head, the uppermost view and a line of keys, as lines for a terminal. Pure; `live` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.text import Text

from nsq_tools.stat.cells import ALARMING, QUIET, fitted, short_number, short_rate, shorten
from nsq_tools.stat.cursor import Cursor, Scroll
from nsq_tools.stat.model import Failure
from nsq_tools.stat.navigation import HelpView, Navigation, ProblemTable, TopicView
from nsq_tools.stat.rows import Row
from nsq_tools.stat.table import Severities, heading, layout_of, lines_of, select
from nsq_tools.stat.views import (
    TopicFacts,
    counts_text,
    help_lines,
    problem_details,
    problem_head,
    problem_table,
    topic_figures,
    topic_lines,
    worst_style,
)
from nsqd_py.cluster.problems.kinds import Problem
from nsqd_py.cluster.statistics import MILLI
from nsqd_py.runtime.logs import one_line

_KEYS = ("q quit", "? help", "Enter open", "/ filter", "p problems", "s next column", "r turn order")
_KEYS_OF_PROBLEMS = ("q back", "? help", "Enter open the topic", "arrows Page Home End select")
_KEYS_OF_TEXTS = ("q back", "? help", "p problems", "arrows Page Home End scroll")
_MOST_FAILURES = 3
# The details of a problem take at most this part of the height.
_DETAILS_PART = 3


@dataclass(frozen=True, slots=True)
class ScreenView:
    """The contents of the screen.

    rows      the selected rows, in the order of the navigation
    all_rows  the rows before the selection
    topic     of the view of a topic
    """

    navigation: Navigation
    rows: Sequence[Row]
    all_rows: Sequence[Row]
    node_count: int
    failures: Sequence[Failure]
    interval: str
    clock: str
    problems: Sequence[Problem] = ()
    severities: Severities = field(default_factory=dict)
    topic: TopicFacts | None = None


def draw(view: ScreenView, width: int, height: int) -> list[Text]:
    """Return at most `height` lines of at most `width` characters. A number that does not fit is left out.

    The cursors of the navigation learn which lines there are, and how many of them are visible.
    """
    uppermost = view.navigation.view
    if isinstance(uppermost, HelpView):
        head = [Text("nsq-stat: help", style="bold")]
        body = _scrolled(help_lines(width), uppermost.scroll, height - 2)
    elif isinstance(uppermost, TopicView) and view.topic is not None:
        head = [_topic_title(view, view.topic, width), topic_figures(view.topic, width), *_failures(view, width)]
        body = _scrolled(topic_lines(view.topic, width, height), uppermost.scroll, height - len(head) - 1)
    elif isinstance(uppermost, ProblemTable):
        head = [problem_head(view.problems, width), *_failures(view, width)]
        body = _problems(view, uppermost, width, height, height - len(head) - 1)
    else:
        head = [_title(view, width), _totals(view, width), *_failures(view, width)]
        body = _table(view, width, height - len(head) - 1)
    lines = [*head, *body][: max(height - 1, 0)]
    lines += [Text() for _ in range(height - 1 - len(lines))]
    lines.append(_foot(view, width))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


# --- above and below the view


def _title(view: ScreenView, width: int) -> Text:
    topics = sum(1 for row in view.all_rows if not row.name.channel)
    parts = (
        "nsq-stat",
        f"nsqd: {view.node_count}",
        f"topics: {topics}",
        f"channels: {len(view.all_rows) - topics}",
        f"every {view.interval}",
        f"by {view.navigation.order}",
        view.clock,
    )
    name, gap, rest = fitted(parts, width, "  ").partition("  ")
    return Text(name, style="bold").append(gap + rest, style="not bold")


def _topic_title(view: ScreenView, topic: TopicFacts, width: int) -> Text:
    is_paused = any(row.is_paused for row in topic.rows if not row.name.channel)
    name = f"topic {topic.name}{' (paused)' if is_paused else ''}"
    parts = (shorten(name, width), f"nsqd: {len(topic.nodes)}", f"every {view.interval}", view.clock)
    return Text(fitted(parts, width, "  "), style="bold")


def _totals(view: ScreenView, width: int) -> Text:
    """Return the problems, and the totals of the selected rows. Incoming messages count once a topic, not once a channel."""
    incoming = sum(row.rates.messages for row in view.rows if row.rates and not row.name.channel) / MILLI
    done = sum(row.rates.finished for row in view.rows if row.rates and row.name.channel) / MILLI
    depth = sum(row.counts.depth for row in view.rows)
    in_flight = sum(row.counts.in_flight for row in view.rows)
    problems = counts_text(view.problems)
    parts = (
        *([problems] if problems else []),
        f"in {short_rate(max(incoming, 0))}/s",
        f"out {short_rate(max(done, 0))}/s",
        f"depth {short_number(depth)}",
        f"in flight {short_number(in_flight)}",
    )
    line = Text(fitted(parts, width))
    if problems:
        line.stylize(worst_style(view.problems), 0, len(problems))
    return line


def _failures(view: ScreenView, width: int) -> list[Text]:
    lines = [Text(f"failed: {failure}", style=ALARMING) for failure in view.failures[:_MOST_FAILURES]]
    more = len(view.failures) - len(lines)
    return [*lines, *([Text(fitted([f"… {more} more failed"], width), style=ALARMING)] if more > 0 else [])]


def _foot(view: ScreenView, width: int) -> Text:
    navigation = view.navigation
    if navigation.is_typing:
        shown = f"/{navigation.filter}"[-max(width - 1, 1) :]  # the end, where one types
        return Text(shown).append(" ", "reverse")
    uppermost = navigation.view
    if isinstance(uppermost, ProblemTable):
        return Text(fitted(_KEYS_OF_PROBLEMS, width), style=QUIET)
    if uppermost is not navigation.table:
        return Text(fitted(_KEYS_OF_TEXTS, width), style=QUIET)
    if navigation.filter:
        found = f"filter {navigation.filter}: {len(view.rows):,} of {len(view.all_rows):,} rows, Esc clears it"
        return Text(shorten(found, width), style="bold")
    return Text(fitted(_KEYS, width), style=QUIET)


# --- the views


def _scrolled(lines: Sequence[Text], scroll: Scroll, room: int) -> list[Text]:
    """Return the visible lines of a text and, if some do not fit, a line with their number."""
    room = max(room, 0)
    scroll.show(len(lines), room if len(lines) <= room else max(room - 1, 0))
    visible = list(lines[scroll.top : scroll.top + scroll.page])
    left = len(lines) - scroll.top - scroll.page
    if scroll.page < len(lines):
        visible.append(Text(f"… {left} more lines" if left else "(end)", style=QUIET))
    return visible


def _page_of(cursor: Cursor, keys: Sequence[object], room: int) -> range:
    """Note the lines of a list in its cursor, and return which of them are visible: one less if some do not fit."""
    cursor.show(keys, len(keys) if len(keys) <= room else max(room - 1, 0))
    return range(cursor.top, cursor.top + cursor.page)


def _table(view: ScreenView, width: int, room: int) -> list[Text]:
    """Return the heading and rows in `room` lines and, if some do not fit, a line with their number."""
    cursor = view.navigation.table.cursor
    visible = _page_of(cursor, [(row.name, row.node) for row in view.rows], max(room - 1, 0))
    layout = layout_of(view.rows, width)
    order = view.navigation.order
    rows = view.rows[visible.start : visible.stop]
    lines = lines_of(rows, layout, view.severities, is_by_topic=order.column == "topic")
    if cursor.index in visible:
        select(lines[cursor.index - visible.start], width)
    if len(visible) < len(view.rows):
        lines.append(Text(f"… {len(view.rows) - len(visible)} more", style=QUIET))
    elif not view.rows:
        lines.append(Text(_nothing(view), style=QUIET))
    return [heading(layout, order), *lines][: max(room, 0)]


def _nothing(view: ScreenView) -> str:
    if view.all_rows:
        return "no topic or channel matches the filter"
    return "no topic or channel" if view.node_count else "no nsqd"


def _problems(view: ScreenView, table: ProblemTable, width: int, height: int, room: int) -> list[Text]:
    """Return a list of problems, and the details of the selected one below it."""
    table.topics = {problem.key: one_line(problem.topic) for problem in view.problems}
    if not view.problems:
        table.cursor.show((), 0)
        return [Text("no problems", style=QUIET)][: max(room, 0)]
    keys = [problem.key for problem in view.problems]
    table.cursor.show(keys, table.cursor.page)  # it may have moved
    details = problem_details(view.problems[table.cursor.index], width)[: height // _DETAILS_PART]
    list_room = max(room - 2 - len(details), 1)
    visible = _page_of(table.cursor, keys, list_room)
    lines = problem_table(view.problems[visible.start : visible.stop], table.cursor.index, visible.start, width)
    if len(visible) < len(keys):
        lines.append(Text(f"… {len(keys) - len(visible)} more", style=QUIET))
    lines += [Text() for _ in range(list_room + 1 - len(lines))]
    return [*lines[: list_room + 1], Text(), *details][: max(room, 0)]
