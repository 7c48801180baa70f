"""The views over the table: one topic, the problems, the help. Each is made of lines of a given width. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.text import Text

from nsq_tools.stat.cells import (
    ALARMING,
    MARKS,
    STYLES,
    fitted,
    padded,
    plot,
    short_bytes,
    short_number,
    short_rate,
    short_span,
    shorten,
)
from nsq_tools.stat.checking import Problems, line_of, subject_of
from nsq_tools.stat.clients import Client, Clients
from nsq_tools.stat.model import NodePart
from nsq_tools.stat.rows import Order, Row
from nsq_tools.stat.screen.table import Lines, Severities, heading, layout_of, lines_of, quiet, select
from nsqd_py.cluster.problems.kinds import ERROR, INFO, WARNING, Problem
from nsqd_py.cluster.problems.words import counted
from nsqd_py.cluster.statistics import MILLI
from nsqd_py.runtime.logs.daemon_log import one_line

# The plot of a topic takes at most this part of the height.
_PLOT_PART = 3
_MOST_PLOT_LINES = 10
_MOST_PROBLEMS = 3
_RUNBOOKS = "docs/runbooks.md"
_SCALE_WIDTH = 6
_NOUNS = {ERROR: "error", WARNING: "warning", INFO: "notice"}

_HELP = {
    "j, k, arrows, Page, g, G": "select a line, or scroll",
    "Enter": "open the selected topic: its channels, nsqds and clients",
    "/": "filter topics and channels by what you type: Enter keeps the filter, Esc clears it",
    "p": "problems, with what to do and the runbook; Enter opens the topic",
    "s, r": "sort by the next column, reverse the order",
    "Esc, q": "back; on the first screen Esc clears the filter, and q quits",
    "Ctrl-C": "quit",
}
_MEANINGS = {
    f"{MARKS[ERROR]}, red": "the row has an error",
    f"{MARKS[WARNING]}, yellow": "it has a warning",
    f"{MARKS[INFO]}, cyan": "planned work",
    "in/s, out/s": "messages that were published, and that consumers finished",
    "t-out, requ": "messages that timed out, and that were requeued, since nsqd started",
    "age": "time since the oldest waiting message was published",
    "trend": "depths of the latest rounds, scaled to the highest of them",
    "drain": "time until nothing waits, at the present rate",
    "disk": "bytes of the topic's log; - if an nsqd does not report them",
}


class TopicFacts(NamedTuple):
    """The known facts of a topic. `rows` are those of the table; `depths` those of the latest rounds, the oldest first."""

    name: str
    rows: Sequence[Row]
    severities: Severities
    problems: Problems
    depths: Sequence[float]
    interval_s: float
    nodes: Sequence[NodePart]
    clients: Clients | None  # None until they have answered
    now_s: float  # since the epoch


# --- a topic


def topic_lines(facts: TopicFacts, width: int, height: int) -> Lines:
    """Return all lines of a topic; more than fit on the screen are scrolled."""
    lines = _problem_lines(facts.problems)
    if not facts.rows and not facts.nodes:
        return [*lines, quiet("no nsqd has this topic now")]
    lines += _plot_lines(facts, width, height)
    lines += _channel_lines(facts, width)
    lines += [Text(), *_node_lines(facts.nodes, width)]
    lines += [Text(), *_client_lines(facts.clients, facts.now_s, width)]
    return lines


def topic_totals(facts: TopicFacts, width: int) -> Text:
    """Return the totals of a topic on one line."""
    own = [row for row in facts.rows if not row.name.channel]
    incoming, done, depth, in_flight = totals_of(facts.rows)
    parts = [depth, incoming, done]
    sizes = [row.log_bytes for row in own]
    if sizes and None not in sizes:
        parts.append(f"disk {short_bytes(sum(filter(None, sizes)))}")
    deferred = sum(row.counts.deferred for row in facts.rows)
    messages = sum(row.counts.messages for row in own)
    parts += [in_flight, f"deferred {short_number(deferred)}", f"messages {short_number(messages)}"]
    return Text(fitted(parts, width))


def totals_of(rows: Sequence[Row]) -> tuple[str, str, str, str]:
    """Return the rates in and out, the depth and the messages in flight of rows.

    Incoming messages count once a topic, not once a channel.
    """
    topics = [row.rates for row in rows if row.rates and not row.name.channel]
    channels = [row.rates for row in rows if row.rates and row.name.channel]
    incoming = sum(rates.messages for rates in topics) / MILLI
    done = sum(rates.finished for rates in channels) / MILLI
    depth = sum(row.counts.depth for row in rows)
    in_flight = sum(row.counts.in_flight for row in rows)
    return (
        f"in {short_rate(max(incoming, 0))}/s",
        f"out {short_rate(max(done, 0))}/s",
        f"depth {short_number(depth)}",
        f"in flight {short_number(in_flight)}",
    )


def _problem_lines(problems: Problems) -> Lines:
    lines = []
    for problem in problems[:_MOST_PROBLEMS]:
        severity = problem.severity
        lines.append(Text(f"{MARKS[severity]} {line_of(problem)}", style=STYLES[severity]))
    more = len(problems) - len(lines)
    if more > 0:
        lines.append(quiet(f"… {counted(more, 'more problem')}: p"))
    return lines


def _plot_lines(facts: TopicFacts, width: int, height: int) -> Lines:
    """Return a plot of the depth, with its title and an empty line below: a third of the height at most."""
    count = min(height // _PLOT_PART - 2, _MOST_PLOT_LINES)
    most_columns = width - _SCALE_WIDTH - 1
    if count < 1 or most_columns < 1 or not facts.depths:
        return []
    seconds = (min(len(facts.depths), most_columns) - 1) * facts.interval_s
    columns = plot(facts.depths, min(most_columns, len(facts.depths)), count)
    highest = max(facts.depths[-most_columns:])
    labels = {count - 1: "0", 0: short_number(highest)}
    lines = [Text(fitted([f"depth of the last {short_span(seconds)}"], width), style="bold")]
    for number, column in enumerate(columns):
        label = labels.get(number, "").rjust(_SCALE_WIDTH)
        lines.append(quiet(label).append(" ").append(column, "not dim green"))
    return [*lines, Text()]


def _channel_lines(facts: TopicFacts, width: int) -> Lines:
    layout = layout_of(facts.rows, width)
    lines = [heading(layout, Order()), *lines_of(facts.rows, layout, facts.severities, is_by_topic=True)]
    if not any(row.name.channel for row in facts.rows):
        lines.append(quiet("no channel"))
    return lines


def _node_lines(nodes: Sequence[NodePart], width: int) -> Lines:
    rows = [_node_row(node) for node in nodes]
    lines = _aligned(("nsqd", "depth", "in/s", "disk", "conn", ""), rows, width, left=(0, 5))
    for line, node in zip(lines[1:], nodes, strict=True):
        line.style = ALARMING if node.failure else ""
    return lines


def _node_row(node: NodePart) -> tuple[str, ...]:
    rate = "-"
    if node.messages_per_s is not None:
        rate = short_rate(max(node.messages_per_s, 0))
    log_size = "-"
    if node.log_bytes is not None:
        log_size = short_bytes(node.log_bytes)
    failure = f"failed: {node.failure}" if node.failure else ""
    return (node.address, short_number(node.depth), rate, log_size, short_number(node.clients), failure)


def _client_lines(clients: Clients | None, now_s: float, width: int) -> Lines:
    if clients is None:
        return [quiet("clients: asking …")]
    rows = [_client_row(client, now_s) for client in clients.listed]
    titles = (
        "client",
        "channel",
        "RDY",
        "flight",
        "fin",
        "requ",
        "pub",
        "since",
        "nsqd",
        "address",
        "program",
    )
    lines = _aligned(titles, rows, width, left=(0, 1, 8, 9, 10))
    if not rows:
        lines.append(quiet("no client"))
    if clients.total > len(rows):
        lines.append(quiet(f"… {clients.total - len(rows):,} more clients"))
    for node in clients.failed:
        lines.append(Text(f"failed: nsqd {one_line(node)} did not say its clients", style=ALARMING))
    return lines


def _client_row(client: Client, now_s: float) -> tuple[str, ...]:
    consumed = [""] * 4
    published = ""
    if client.channel:
        counts = (client.ready, client.in_flight, client.finished, client.requeued)
        consumed = [short_number(count) for count in counts]
    else:
        published = short_number(client.published)
    since = "-"
    if client.connected_s:
        since = short_span(max(now_s - client.connected_s, 0))
    return (
        client.name,
        client.channel or "(publishes)",
        *consumed,
        published,
        since,
        client.node,
        client.address,
        client.program,
    )


def _aligned(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, left: Sequence[int]) -> Lines:
    """Return a heading and the rows in aligned columns. Columns that do not fit are left out; no number is cut."""
    cells_of = enumerate(zip(titles, *rows, strict=True))
    columns = [padded(column, is_left=index in left) for index, column in cells_of]
    longest, *others = (len(column[0]) for column in columns)
    room = width - sum(others[:3]) - 3
    most = max(min(longest, room), min(longest, 8))
    lines = []
    for name, *cells in zip(*columns, strict=True):
        shown = shorten(name.rstrip(), most).ljust(most)
        lines.append(fitted((shorten(shown, max(width, 1)), *cells), width, " "))
    return [Text(lines[0].ljust(width), style="bold reverse"), *map(Text, lines[1:])]


# --- problems


def problem_head(problems: Problems, width: int) -> Text:
    """Return "problems: 2 errors, 1 warning", in the colour of the worst."""
    return Text(fitted([f"problems: {counts_text(problems) or 'none'}"], width), style=worst_style(problems))


def counts_text(problems: Iterable[Problem]) -> str:
    """Return "2 errors, 1 warning"; empty if there are no problems."""
    counts = Counter(problem.severity for problem in problems)
    return ", ".join(counted(counts[severity], noun) for severity, noun in _NOUNS.items() if counts[severity])


def worst_style(problems: Problems) -> str:
    if problems:
        return STYLES[problems[0].severity]
    return ""


def problem_table(problems: Problems, selected: int, offset: int, width: int) -> Lines:
    """Return a heading, and a line for each of these problems. `selected` is an index into all, these begin at `offset`."""
    names = [shorten(subject_of(problem), max(width // 3, 8)) for problem in problems]
    title, *subjects = padded(["place", *names], is_left=True)
    lines = [Text(f"{'':8}{title} problem".ljust(width), style="bold reverse")]
    for index, (problem, subject) in enumerate(zip(problems, subjects, strict=True), offset):
        kind = problem.about
        line = Text(
            f"{kind.severity:8}{subject} {kind.word}: {one_line(problem.text)}", style=STYLES[kind.severity]
        )
        if index == selected:
            select(line, width)
        lines.append(line)
    return lines


def problem_details(problem: Problem, width: int) -> Lines:
    """Return the whole text of a problem, what to do, and where its runbook is."""
    kind = problem.about
    lines = [Text(line, style=STYLES[kind.severity]) for line in _wrapped(line_of(problem), width)]
    lines += [Text(line) for line in _wrapped(f"do: {kind.advice}", width)]
    lines.append(Text(f"runbook: {_RUNBOOKS}#{problem.kind}"))
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1)) or [""]


# --- help


def help_lines(width: int) -> Lines:
    keys = max(map(len, _HELP | _MEANINGS)) + 2
    lines = []
    for title, rows in (("Keys", _HELP), ("Colours and columns", _MEANINGS)):
        lines.append(Text(title, style="bold"))
        for key, text in rows.items():
            first, *others = _wrapped(text, max(width - keys, 10))
            lines.append(Text(f"{key:{keys}}{first}"))
            lines += [Text(f"{'':{keys}}{more}") for more in others]
        lines.append(Text())
    return lines[:-1]
