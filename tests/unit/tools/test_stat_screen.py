"""nsq-stat's live table, as lines of a given width and height."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_tools.stat.cells import plot, short_bytes, short_number, short_span, sparkline
from nsq_tools.stat.clients import Client, Clients
from nsq_tools.stat.failures import Failure
from nsq_tools.stat.model import NodePart
from nsq_tools.stat.rows import Name, Row
from nsq_tools.stat.screen.drawing import ScreenView, draw
from nsq_tools.stat.screen.navigation import Navigation
from nsq_tools.stat.screen.table import TREND, Layout
from nsq_tools.stat.screen.views import TopicFacts
from nsqd_py.cluster.counts import Rates
from nsqd_py.cluster.problems.kinds import ERROR, KINDS, WARNING, Problem
from tests.unit.tools.stat_rows import row


def view(rows: Sequence[Row], failures: Sequence[Failure] = ()) -> ScreenView:
    return ScreenView(Navigation(), rows, rows, 1, failures, "2s", "12:00:00")


def drawn(seen: ScreenView, width: int = 80, height: int = 24) -> list[str]:
    return [line.plain for line in draw(seen, width, height)]


# --- cells


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (9_999, "9999"),
        (10_000, "10.0k"),
        (99_940, "99.9k"),
        (99_960, "100k"),
        (999_400, "999k"),
        (999_600, "1.0M"),
        (12_345_678, "12.3M"),
        (5e9, "5.0G"),
        (7e15, "7.0P"),
        (2**63, "9.2E"),
        (-20_000, "-20.0k"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text


@given(st.floats(0, 2**63))
def test_no_number_is_wider_than_its_column(value: float) -> None:
    assert len(short_number(value)) <= 5


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ((), "    "),
        ((0, 0), "  ▁▁"),
        ((7,), "   █"),
        ((0, 1, 7, 0), "▁▂█▁"),
        ((9, 0, 3, 5, 7), "▁▄▆█"),  # the 9 is too long ago
        ((1, 1_000_000), "  ▂█"),  # what is not 0 is seen
    ],
)
def test_a_sparkline_shows_the_latest_values(values: Sequence[float], bars: str) -> None:
    assert sparkline(values, 4) == bars


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (172_799, "47h"), (172_800, "2d"), (1e12, "9999d")],
)
def test_time_spans_are_short(seconds: float, text: str) -> None:
    assert short_span(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (12_345_678, "12.3 MB"),
        (99_960_000, "100 MB"),
        (999_600_000, "1.0 GB"),
        (2**63, "9.2 EB"),
    ],
)
def test_sizes_have_a_unit(value: float, text: str) -> None:
    assert short_bytes(value) == text


@given(st.integers(0, 2**63))
def test_no_size_is_wider_than_its_column(value: int) -> None:
    assert len(short_bytes(value)) <= 7


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ((0, 0), ["    ", "    "]),
        ((8, 4), ["  █ ", "  ██"]),
        ((1, 16), ["   █", "  ▁█"]),
        ((9, 0, 3, 5, 16), ["   █", " ▃▅█"]),
    ],
)
def test_a_plot_has_lines(values: Sequence[float], lines: list[str]) -> None:
    assert plot(values, 4, 2) == lines


@given(st.integers(40, 300), st.integers(0, 80))
def test_the_trend_takes_a_third_of_the_width_at_most(width: int, longest: int) -> None:
    layout = Layout.of(width, longest)
    trends = [column.width for column in layout.columns if column.title == TREND]
    assert all(trend <= max(8, width / 3) for trend in trends)
    used = layout.mark_width + layout.name_width + sum(column.width + 1 for column in layout.columns)
    assert used <= width


# --- the whole


BUSY = Rates(messages=3000, finished=3000)
CHANNELS = [row("orders"), row("orders", "archive", BUSY, depth=3), row("orders", "mail")]
PROBLEMS = [
    Problem("no_consumer", "9 messages wait, and no consumer is connected", "orders", "mail"),
    Problem("versions", "2 of 3 nsqds run 1.0"),
    Problem("node_failed", "does not answer (Connection refused)", node="10.0.0.1:4151"),
]


def test_what_seems_to_come_back_is_no_negative_rate() -> None:
    lines = drawn(view([row("a", "b", Rates(growth=50_000))]))
    assert lines[3].split()[:3] == ["a/b", "0", "0"]


def test_disk_is_a_size_of_the_topic() -> None:
    rows = [
        replace(row("a"), log_bytes=12_345_678),
        row("a", "b", messages=7),
        replace(row("c"), log_bytes=None),
    ]
    lines = drawn(view(rows), width=130)
    end = lines[2].index("disk") + 4
    assert [line[end - 7 : end].strip() for line in lines[3:6]] == ["12.3 MB", "", "-"]


def test_rows_say_their_problem_by_letter_and_colour() -> None:
    seen = replace(
        view(CHANNELS),
        severities={Name("orders", "mail"): ERROR, Name("orders"): WARNING},
        problems=PROBLEMS[:1],
    )
    lines = draw(seen, 80, 24)
    assert [line.plain[:2] for line in lines[3:6]] == ["W ", "  ", "E "]
    assert [str(line.style) for line in lines[3:6]] == ["yellow", "", "bold red"]
    assert lines[1].plain.startswith("1 error   in 0/s")


def test_the_filter_and_its_number_of_rows_are_below() -> None:
    seen = view(CHANNELS)
    for key in "/mail":
        seen.navigation.press(key)
    assert drawn(seen)[-1] == "/mail "
    seen.navigation.press("enter")
    assert drawn(replace(seen, rows=CHANNELS[2:]))[-1] == "filter mail: 1 of 3 rows, Esc clears it"


def test_the_prompt_shows_the_end_of_a_long_text() -> None:
    seen = view(CHANNELS)
    for key in "/abcdefghij":
        seen.navigation.press(key)
    assert drawn(seen, 6, 3)[-1] == "fghij "


@given(st.sampled_from(sorted(KINDS)))
def test_each_problem_names_its_runbook(kind: str) -> None:
    seen = replace(view(CHANNELS), problems=[Problem(kind, "is wrong", "orders", "mail")])
    seen.navigation.press("p")
    lines = drawn(seen)
    assert lines[2].split()[0] == KINDS[kind].severity
    assert f"runbook: docs/runbooks.md#{kind}" in lines
    assert f"do: {KINDS[kind].advice}"[:40] in "\n".join(lines)


name = st.text("abcXYZ019._-", min_size=1, max_size=64)
any_row = st.builds(
    lambda topic, channel, depth, node, paused: row(topic, channel, node=node, depth=depth, is_paused=paused),
    name,
    st.one_of(st.just(""), name),
    st.integers(0, 10**12),
    st.one_of(st.just(""), name),
    st.booleans(),
)
keys = st.lists(st.sampled_from(["j", "k", "G", "g", "page down", "page up"]), max_size=6)


@given(
    st.lists(any_row, max_size=40, unique_by=lambda row: (row.name, row.node)),
    st.integers(1, 250),
    st.integers(1, 60),
    st.integers(0, 6),
    keys,
)
def test_it_fits_any_terminal(
    rows: list[Row], width: int, height: int, failed: int, pressed: list[str]
) -> None:
    seen = view(rows, failures=[Failure("nsqd", "x", "no")] * failed)
    lines = drawn(seen, width, height)
    for key in pressed:
        seen.navigation.press(key)
        lines = drawn(seen, width, height)
    assert len(lines) == height
    assert all(len(line) <= width for line in lines)
    left = [int(count) for line in lines for count in re.findall(r"^… (\d+) more$", line)]
    cursor = seen.navigation.table
    if height > failed + 8 and width > 40:
        heads = 3 + min(failed, 3) + (1 if failed > 3 else 0)
        shown = sum(1 for line in lines[heads : height - 1] if line) - (1 if left or not rows else 0)
        assert shown + sum(left) == len(rows)
        assert shown == cursor.page
        assert not rows or cursor.top <= cursor.index < cursor.top + cursor.page


facts = TopicFacts(
    "orders",
    CHANNELS,
    {Name("orders", "mail"): ERROR},
    PROBLEMS,
    [0, 5, 9],
    2.0,
    [NodePart("10.0.0.1:4151", 12, 3.0, 9_999), NodePart("10.0.0.2:4151", failure="Connection refused")],
    Clients(
        "orders",
        [Client("mail", "worker", "10.0.0.9:50000", "10.0.0.1:4151", 2, 1, 7, connected_s=10)],
        9,
        ["10.0.0.2:4151"],
    ),
    70.0,
)


@given(
    st.sampled_from([("p",), ("?",), ("enter",), ("p", "enter"), ("?", "p", "G")]),
    st.integers(1, 250),
    st.integers(1, 60),
    keys,
)
def test_each_view_fits_any_terminal(
    opened: tuple[str, ...], width: int, height: int, pressed: list[str]
) -> None:
    seen = replace(view(CHANNELS, [Failure("nsqd", "x", "no")]), problems=PROBLEMS, topic=facts)
    drawn(seen, width, height)
    for key in (*opened, *pressed):
        seen.navigation.press(key)
        lines = drawn(seen, width, height)
        assert len(lines) == height
        assert all(len(line) <= width for line in lines)


def test_a_topic_shows_all_of_it() -> None:
    seen = replace(view(CHANNELS), topic=facts)
    drawn(seen)
    seen.navigation.press("enter")
    text = "\n".join(drawn(seen, 120, 60))
    parts = ("depth 3", "E orders/mail: no consumer: 9", "depth of the last 4s", "archive", "10.0 kB")
    places = [text.index(part) for part in parts if part in text]
    assert len(places) == len(parts)
    assert all(one < other for one, other in pairwise(places))
    assert re.search(r"worker +mail +2 +1 +7 +0 +1m +10\.0\.0\.1:4151", text)
    assert "failed: Connection refused" in text
    assert "… 8 more clients" in text
    assert "failed: nsqd 10.0.0.2:4151 did not say its clients" in text
