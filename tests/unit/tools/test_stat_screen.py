"""nsq-stat's live table, as lines of a given width and height."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsq_tools.stat.model import Failure
from nsq_tools.stat.rows import Order, Row
from nsq_tools.stat.screen import ScreenView, VisibleRows, draw, short_number, short_span, sparkline
from nsqd_py.cluster.statistics import Rates
from tests.unit.tools.stat_rows import row


def view(rows: Sequence[Row], order: str = "topic", failures: Sequence[Failure] = (), all_rows: Sequence[Row] = ()) -> ScreenView:
    return ScreenView(rows, all_rows or rows, 1, failures, Order.parse(order), "2s", "12:00:00")


def drawn(seen: ScreenView, width: int = 80, height: int = 24) -> tuple[list[str], VisibleRows]:
    lines, window = draw(seen, width, height)
    return [line.plain for line in lines], window


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
    ("seconds", "text"), [(0, "0s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (172_799, "47h"), (172_800, "2d"), (1e12, "9999d")]
)
def test_time_spans_are_short(seconds: float, text: str) -> None:
    assert short_span(seconds) == text


# --- the whole


BUSY = Rates(messages=3000, finished=3000)
CHANNELS = [row("orders"), row("orders", "archive", BUSY, depth=3), row("orders", "mail")]


def test_what_seems_to_come_back_is_no_negative_rate() -> None:
    lines = drawn(view([row("a", "b", Rates(growth=50_000))]))[0]
    assert lines[3].split()[:3] == ["a/b", "0", "0"]


name = st.text("abcXYZ019._-", min_size=1, max_size=64)
any_row = st.builds(
    lambda topic, channel, depth, node, paused: row(topic, channel, node=node, depth=depth, is_paused=paused),
    name,
    st.one_of(st.just(""), name),
    st.integers(0, 10**12),
    st.one_of(st.just(""), name),
    st.booleans(),
)


@given(st.lists(any_row, max_size=40), st.integers(1, 250), st.integers(1, 60), st.integers(0, 6), st.integers(0, 50))
def test_it_fits_any_terminal(rows: list[Row], width: int, height: int, failed: int, top: int) -> None:
    seen = replace(view(rows, failures=[Failure("nsqd", "x", "no")] * failed), top=top)
    lines, hidden = drawn(seen, width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    left = [int(count) for line in lines for count in re.findall(r"^… (\d+) more$", line)]
    if height > failed + 8 and width > 40:
        heads = 3 + min(failed, 3) + (1 if failed > 3 else 0)
        shown = sum(1 for line in lines[heads : height - 1] if line) - (1 if left or not rows else 0)
        assert shown + sum(left) == len(rows)
        assert shown == hidden.count
