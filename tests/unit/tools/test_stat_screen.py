"""nsq-stat's live table, as lines of a given width and height."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from nsq_tools.stat.columns import layout, short_number, short_rate, short_span, shorten, sparkline
from nsq_tools.stat.model import HISTORY_LENGTH, Failure
from nsq_tools.stat.rows import Name, Order, Row
from nsq_tools.stat.screen import View, draw, window
from nsqd_py.cluster.statistics import NO_CHANNEL, ChannelCounts, Rates


def row(
    topic: str,
    channel: str = "",
    rates: Rates | None = None,
    node: str = "",
    *,
    depths: Sequence[float] = (0,),
    grows: bool = False,
    paused: bool = False,
    **counts: int,
) -> Row:
    return Row(Name(topic, channel), node, NO_CHANNEL._replace(**counts), rates, paused, tuple(depths), grows)


def view(rows: Sequence[Row], order: str = "topic", failures: Sequence[Failure] = (), all_rows: Sequence[Row] = ()) -> View:
    return View(rows, all_rows or rows, 1, failures, Order.parse(order), "2s", "12:00:00")


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def styles_at(lines: list[Text], row_text: str, column: str) -> set[str]:
    """Of what stands below the end of a column's title, in the first line with `row_text`."""
    head = next(line.plain for line in lines if line.plain.startswith("topic/channel"))
    end = head.index(column) + len(column) - 1
    line = next(line for line in lines if row_text in line.plain)
    return {str(span.style) for span in line.spans if span.start <= end < span.end}


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


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.04, "0.0"), (2.5, "2.5"), (9.97, "10"), (12_345, "12.3k")])
def test_small_rates_have_a_decimal_place(value: float, text: str) -> None:
    assert short_rate(value) == text


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


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_a_higher_value_is_never_a_lower_bar(values: list[int]) -> None:
    bars = sparkline(values, len(values))
    for value, bar in zip(values, bars, strict=True):
        assert (bar == "▁") == (value == 0)
        assert all(bar <= other for other_value, other in zip(values, bars, strict=True) if value <= other_value)


def test_long_names_keep_both_ends() -> None:
    assert shorten("orders/archive", 14) == "orders/archive"
    assert shorten("orders/archive", 9) == "orde…hive"
    assert shorten("orders/archive", 1) == "…"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (172_799, "47h"), (172_800, "2d"), (1e12, "9999d")]
)
def test_time_spans_are_short(seconds: float, text: str) -> None:
    assert short_span(seconds) == text


def test_ages_and_the_time_until_nothing_waits() -> None:
    def cells(**statistics: Any) -> list[str]:
        shown = row("orders", "archive", BUSY, depth=3)
        columns = {column.title: column for column in layout(200, 10).columns}
        return [columns[title].cell(replace(shown, **statistics))[0] for title in ("age", "drain")]

    assert cells(oldest_age_s=125.0, drain_s=8.2) == ["2m", "8s"]
    assert cells(oldest_age_s=None, drain_s=math.inf) == ["-", "never"]


# --- columns


def titles(width: int, longest_name: int = 10, longest_node: int = 0) -> list[str]:
    return [column.title for column in layout(width, longest_name, longest_node).columns]


def test_columns_go_by_their_importance() -> None:
    statistics = ["in/s", "out/s", "depth", "age", "trend", "flight", "defer", "requ", "t-out"]
    assert titles(200) == [*statistics, "conn", "drain", "disk", "total"]
    assert titles(80) == statistics
    assert titles(60) == ["in/s", "out/s", "depth", "age", "trend", "t-out"]
    assert titles(30) == ["in/s", "depth"]
    assert titles(10) == titles(8) == ["depth"]
    assert titles(7) == []


def test_names_give_way_to_the_last_figure() -> None:
    assert layout(20, 30).name_width == 13
    assert (layout(30, 30, longest_node=20).name_width, layout(30, 30, longest_node=20).node_width) == (23, 0)
    assert (layout(8, 30).name_width, layout(7, 30).name_width) == (1, 7)


def test_room_goes_to_names_first_then_to_trends() -> None:
    assert layout(80, 10).name_width == 14
    wide = layout(200, 30)
    assert (wide.name_width, wide.trend_width) == (30, 200 - 30 - (6 * 6 + 6 * 5) - 13)
    assert layout(200, 300).name_width == 60
    assert layout(400, 30).trend_width == HISTORY_LENGTH


# --- the whole


BUSY = Rates(messages=3000, finished=3000)
CHANNELS = [row("orders"), row("orders", "archive", BUSY, depth=3), row("orders", "mail")]


def test_a_table_has_title_totals_head_rows_and_keys() -> None:
    lines = plain(draw(view(CHANNELS), 80, 24))
    assert lines[0] == "nsq-stat  1 nsqd  1 topic  2 channels  every 2s  by topic  12:00:00"
    assert lines[1] == "in 0/s   out 3.0/s   depth 3   in flight 0"
    assert " ".join(lines[2].split()) == "topic/channel in/s out/s depth age trend flight defer requ t-out"
    assert [line.split()[0] for line in lines[3:6]] == ["orders", "archive", "mail"]
    assert lines[4].split() == ["archive", "3.0", "3.0", "3", "-", "▁", "0", "0", "0", "0"]
    assert lines[3].split() == ["orders", "-", "0", "-", "▁"]  # a topic has nothing in flight
    assert lines[-1].startswith("q quit")
    assert len(lines) == 24


def test_names_are_whole_where_no_topic_stands_above() -> None:
    by_depth = plain(draw(view(CHANNELS, "depth"), 80, 24))
    assert [line.split()[0] for line in by_depth[3:6]] == ["orders", "orders/archive", "orders/mail"]
    channels_only = plain(draw(view(CHANNELS[1:]), 80, 24))
    assert [line.split()[0] for line in channels_only[3:5]] == ["orders/archive", "mail"]


def test_what_does_not_fit_is_counted() -> None:
    rows = [row(f"topic{number:03}") for number in range(100)]
    lines = plain(draw(view(rows), 80, 24))
    assert "topic018" in lines[-3]
    assert lines[-2] == "… 81 more"
    assert len(lines) == 24


def test_rows_are_scrolled_to() -> None:
    rows = [row(f"topic{number:03}") for number in range(100)]
    lines = plain(draw(replace(view(rows), top=50), 80, 24))
    assert lines[3].startswith("topic050")
    assert "topic068" in lines[-3]
    assert lines[-2] == "… 50 above and 31 below"
    for far in (82, 1000):
        last = plain(draw(replace(view(rows), top=far), 80, 24))
        assert "topic099" in last[-3]
        assert last[-2] == "… 81 above"


def test_a_channel_whose_topic_is_scrolled_away_names_it() -> None:
    rows = [row("orders"), *(row("orders", f"c{number:02}") for number in range(40))]
    lines = plain(draw(replace(view(rows), top=5), 80, 24))
    assert [line.split()[0] for line in lines[3:5]] == ["orders/c04", "c05"]


def test_a_low_terminal_keeps_its_lines_for_rows() -> None:
    lines = plain(draw(view([row(f"topic{number}") for number in range(9)]), 80, 6))
    assert len(lines) == 6
    assert lines[-1] == "… 6 more"


def test_failures_are_shown_with_their_reasons() -> None:
    failures = [Failure("nsqd", f"10.0.0.{number}:4151", "Connection refused") for number in range(5)]
    lines = draw(view(CHANNELS, failures=failures), 80, 24)
    assert plain(lines)[2] == "failed: nsqd 10.0.0.0:4151: Connection refused"
    assert plain(lines)[5] == "… 2 more failed"
    assert "orders" in plain(lines)[7]
    assert lines[2].style == "bold red"


def test_what_seems_to_come_back_is_no_negative_rate() -> None:
    lines = plain(draw(view([row("a", "b", Rates(growth=50_000))]), 80, 24))
    assert lines[3].split()[:3] == ["a/b", "0", "0"]


FIGURE = re.compile(r"-?\d[\d.]*[kMGTPE]?")
MANY = ChannelCounts(
    depth=1007,
    backend_depth=1009,
    in_flight=1013,
    deferred=1019,
    messages=12_345_678,
    requeued=1021,
    timed_out=1031,
    clients=1033,
)
PACE = Rates(messages=12_345_678_000, requeued=1021_000, timed_out=1031_000, finished=12_342_639_000, growth=1007_000)


@pytest.mark.parametrize("node", ["", "node:x", "a-node-with-a-long-name.example"])
def test_a_figure_is_whole_or_not_shown(node: str) -> None:
    """At 20 columns, 1007 was seen as 100."""
    rows = [Row(Name("orders", channel), node, MANY, PACE, False, (1,), False) for channel in ("", "a", "b", "c")] * 3
    finished = PACE.finished // 1000
    shown = {*map(short_number, MANY), short_rate(finished)}
    in_head = {short_rate(MANY.messages * 3), short_rate(finished * 9), short_number(1007 * 12)}
    counted = {short_number(1013 * 12), "7777", "3", "9"}
    for width in (*range(1, 100), 130, 160):
        for height in (5, 12, 40):
            seen = View(rows, rows, 7777, [Failure("nsqd", "x", "no")] * 90, Order(), "2s", "", top=3)
            lines = plain(draw(seen, width, height))
            hidden = window(seen, width, height)
            allowed = shown | in_head | counted | {str(hidden.top), str(hidden.below), "87"}
            found = {figure for line in lines for figure in FIGURE.findall(line)}
            assert found - {"2"} <= allowed, (width, height, lines)
            if width >= 20 and not node and height == 40:
                assert "1007" in found


name = st.text("abcXYZ019._-", min_size=1, max_size=64)
any_row = st.builds(
    lambda topic, channel, depth, node, paused: row(topic, channel, node=node, depth=depth, paused=paused),
    name,
    st.one_of(st.just(""), name),
    st.integers(0, 10**12),
    st.one_of(st.just(""), name),
    st.booleans(),
)


@given(st.lists(any_row, max_size=40), st.integers(1, 250), st.integers(1, 60), st.integers(0, 6), st.integers(0, 50))
def test_it_fits_any_terminal(rows: list[Row], width: int, height: int, failed: int, top: int) -> None:
    seen = replace(view(rows, failures=[Failure("nsqd", "x", "no")] * failed), top=top)
    lines = plain(draw(seen, width, height))
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    left = [
        int(count)
        for line in lines
        for count in re.findall(r"(\d+) (?:more|above|below)$|(\d+) above and", line)
        for count in count
        if count
    ]
    hidden = window(seen, width, height)
    assert hidden.top + hidden.count + hidden.below == len(rows)
    if height > failed + 8 and width > 40:
        heads = 1 + (0 if height < 10 else 1) + min(failed, 3) + (1 if failed > 3 else 0) + 1
        feet = 0 if height < 10 else 1
        shown = sum(1 for line in lines[heads : height - feet] if line) - (1 if left or not rows else 0)
        assert shown + sum(left) == len(rows)
        assert shown == hidden.count
