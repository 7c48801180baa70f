"""The screen: a head, the uppermost view and a line of keys, as lines for a terminal. Pure; `live` draws them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from nsq_tools.stat.cells import ALARMING, fitted, shorten
from nsq_tools.stat.checking import Problems
from nsq_tools.stat.failures import Failure
from nsq_tools.stat.rows import Row
from nsq_tools.stat.screen.cursor import Cursor, Scroll
from nsq_tools.stat.screen.navigation import HelpView, Navigation, ProblemTable, TopicView
from nsq_tools.stat.screen.table import Lines, Severities, heading, layout_of, lines_of, quiet, select
from nsq_tools.stat.screen.views import (
    TopicFacts,
    counts_text,
    help_lines,
    problem_details,
    problem_head,
    problem_table,
    topic_lines,
    topic_totals,
    totals_of,
    worst_style,
)
from nsqd_py.runtime.logs.daemon_log import one_line

_KEYS: Sequence[str] = (
    "q quit",
    "? help",
    "Enter open",
    "/ filter",
    "p problems",
    "s next column",
    "r turn order",
)
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
    problems: Problems = ()
    severities: Severities = field(default_factory=dict)
    topic: TopicFacts | None = None


def draw(view: ScreenView, width: int, height: int) -> Lines:
    """Return at most `height` lines of at most `width` characters. A number that does not fit is left out.

    The cursors of the navigation learn which lines there are, and how many of them are visible.
    """
    uppermost = view.navigation.view
    failures = _failures(view, width)
    if isinstance(uppermost, HelpView):
        head = [Text("nsq-stat: help", style="bold")]
        body = _scrolled(help_lines(width), uppermost, height - 2)
    elif isinstance(uppermost, TopicView) and view.topic is not None:
        head = [_topic_title(view, view.topic, width), topic_totals(view.topic, width), *failures]
        lines = topic_lines(view.topic, width, height)
        body = _scrolled(lines, uppermost, height - len(head) - 1)
    elif isinstance(uppermost, ProblemTable):
        head = [problem_head(view.problems, width), *failures]
        body = _problems(view, uppermost, width, height, height - len(head) - 1)
    else:
        head = [_title(view, width), _totals(view, width), *failures]
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
    """Return the problems, and the totals of the selected rows."""
    problems = counts_text(view.problems)
    parts = filter(None, (problems, *totals_of(view.rows)))
    line = Text(fitted(tuple(parts), width))
    line.stylize(worst_style(view.problems), 0, len(problems))
    return line


def _failures(view: ScreenView, width: int) -> Lines:
    texts = [f"failed: {failure}" for failure in view.failures[:_MOST_FAILURES]]
    more = len(view.failures) - len(texts)
    if more > 0:
        texts.append(fitted([f"… {more} more failed"], width))
    return [Text(text, style=ALARMING) for text in texts]


def _foot(view: ScreenView, width: int) -> Text:
    navigation = view.navigation
    if navigation.is_typing:
        shown = f"/{navigation.filter}"[-max(width - 1, 1) :]  # the end, where one types
        return Text(shown).append(" ", "reverse")
    keys = _KEYS
    if isinstance(navigation.view, ProblemTable):
        keys = _KEYS_OF_PROBLEMS
    elif navigation.view is not navigation.table:
        keys = _KEYS_OF_TEXTS
    elif navigation.filter:
        found = (
            f"filter {navigation.filter}: {len(view.rows):,} of {len(view.all_rows):,} rows, Esc clears it"
        )
        return Text(shorten(found, width), style="bold")
    return quiet(fitted(keys, width))


# --- the views


def _scrolled(lines: Lines, scroll: Scroll, most_lines: int) -> Lines:
    """Return the visible lines of a text and, if some do not fit, a line with their number."""
    scroll.fit(len(lines), _page(len(lines), most_lines))
    end = scroll.top + scroll.page
    visible = lines[scroll.top : end]
    if scroll.page < len(lines):
        visible.append(quiet(f"… {len(lines) - end} more lines" if end < len(lines) else "(end)"))
    return visible


def _page(count: int, most_lines: int) -> int:
    """Return how many of `count` lines are visible: one less than there is room for if some do not fit."""
    if count <= most_lines:
        return count
    return max(most_lines - 1, 0)


def _page_of(cursor: Cursor, keys: Sequence[Hashable], most_lines: int) -> range:
    """Note the lines of a list in its cursor, and return which of them are visible."""
    cursor.show(keys, _page(len(keys), most_lines))
    return range(cursor.top, cursor.top + cursor.page)


def _more(visible: range, total: int) -> Lines:
    """Return a line with the number of lines that are not visible, if there are any."""
    if len(visible) < total:
        return [quiet(f"… {total - len(visible)} more")]
    return []


def _table(view: ScreenView, width: int, most_lines: int) -> Lines:
    """Return the heading and rows in `most_lines` lines and, if some do not fit, a line with their number."""
    cursor = view.navigation.table
    names = [(row.name, row.node) for row in view.rows]
    visible = _page_of(cursor, names, max(most_lines - 1, 0))
    layout = layout_of(view.rows, width)
    order = view.navigation.order
    rows = view.rows[visible.start : visible.stop]
    lines = lines_of(rows, layout, view.severities, is_by_topic=order.column == "topic")
    if cursor.index in visible:
        select(lines[cursor.index - visible.start], width)
    if not view.rows:
        lines.append(quiet(_nothing(view)))
    shown = [heading(layout, order), *lines, *_more(visible, len(view.rows))]
    return shown[: max(most_lines, 0)]


def _nothing(view: ScreenView) -> str:
    if view.all_rows:
        return "no topic or channel matches the filter"
    return "no topic or channel" if view.node_count else "no nsqd"


def _problems(view: ScreenView, table: ProblemTable, width: int, height: int, most_lines: int) -> Lines:
    """Return a list of problems, and the details of the selected one below it."""
    table.topics = {problem.key: one_line(problem.topic) for problem in view.problems}
    keys = [problem.key for problem in view.problems]
    table.show(keys, table.page)  # it may have moved
    if not keys:
        return [quiet("no problems")][: max(most_lines, 0)]
    details = problem_details(view.problems[table.index], width)[: height // _DETAILS_PART]
    list_lines = max(most_lines - 2 - len(details), 1)
    visible = _page_of(table, keys, list_lines)
    shown = view.problems[visible.start : visible.stop]
    lines = problem_table(shown, table.index, visible.start, width)
    lines += _more(visible, len(keys))
    lines += [Text() for _ in range(list_lines + 1 - len(lines))]
    lines = [*lines[: list_lines + 1], Text(), *details]
    return lines[: max(most_lines, 0)]
