"""Primaries and standbys in nsq-stat's live table and reports."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from rich.text import Text

from nsq_tools.stat.export import Report, Standbys, all_troubles, summary, to_csv, to_json, to_table, with_troubles
from nsq_tools.stat.rows import Order
from nsq_tools.stat.screen import View, draw
from nsqd_py.cluster.roles import Lag, Pair

FOLLOWS = Pair("a:4151", "b:4151", True, "following", True, Lag(3, 400, 200), 0, 2, 1, False)
LATE = FOLLOWS._replace(standby="c:4151", lag=Lag(12_345, 6_000_000, 20_500))
AWAY = FOLLOWS._replace(primary="x:4150", standby="d:4151", state="connecting", as_of_ms=61_000, primary_answers=False)
NONE = FOLLOWS._replace(primary="e:4151", standby="", state="missing", acks=0)


def known(*pairs: Pair) -> Standbys:
    return with_troubles(pairs, 10.0)


def report(*pairs: Pair, only_standbys: bool = False) -> Report:
    return Report(12.5, [], ["a:4151"], (), known(*pairs), only_standbys)


def screen(*pairs: Pair, width: int = 100, height: int = 30) -> list[Text]:
    return draw(View([], [], 1, [], Order.parse("topic"), "2s", "12:00:00", known(*pairs)), width, height)


def styles_of(lines: list[Text], text: str) -> set[str]:
    return {str(line.style) for line in lines if text in line.plain}


def test_without_standbys_nothing_is_shown() -> None:
    assert "standby" not in "\n".join(line.plain for line in screen())
    assert "standbys" not in json.loads(to_json(report(), is_first=True))
    assert to_table(report(), is_first=True) == to_table(replace(report(), with_colour=True), is_first=True)
    assert to_table(report(only_standbys=True), is_first=True) == "no standbys\n"


def test_the_troubled_come_first_and_are_red() -> None:
    lines = screen(FOLLOWS, LATE, AWAY, NONE)
    shown = [line.plain for line in lines if "standby" in line.plain]
    assert shown[0].startswith("standby c:4151  of a:4151  following  lag 12.3k messages, 6.0M bytes, 20.5 s")
    assert shown[-1].startswith("standby b:4151  of a:4151  following  lag 3 messages, 400 bytes, 0.2 s")
    assert styles_of(lines, "standby b:4151") == {"dim"}
    for text in ("standby c:4151", "lacks what", "standby d:4151", "primary e:4151", "none follows it"):
        assert styles_of(lines, text) == {"bold red"}, text
    assert summary(AWAY)[-1] == "as of 61 s ago"


def test_a_short_screen_has_only_those_in_trouble() -> None:
    lines = [line.plain for line in screen(FOLLOWS, LATE, height=8)]
    assert [line for line in lines if "standby" in line] == [line for line in lines if "c:4151" in line]


@pytest.mark.parametrize("width", [1, 10, 30, 60])
@pytest.mark.parametrize("height", [1, 5, 12])
def test_any_size_is_kept(width: int, height: int) -> None:
    lines = screen(FOLLOWS, LATE, AWAY, NONE, width=width, height=height)
    assert len(lines) <= height
    assert all(len(line.plain) <= width for line in lines)


def test_reports_have_a_row_for_each_pair() -> None:
    (late, follows) = csv.DictReader(io.StringIO(to_csv(report(FOLLOWS, LATE, only_standbys=True), is_first=True)))
    assert (late["time"], late["standby"], late["lag_s"], follows["lag_messages"]) == ("12.500", "c:4151", "20.5", "3")
    (row,) = json.loads(to_json(report(NONE), is_first=True))["standbys"]
    assert (row["standby"], row["state"], row["trouble"]) == ("", "missing", "accepts standbys, and none follows it")
    table = to_table(report(LATE), is_first=True)
    assert table.startswith("topic ")
    assert table.splitlines()[2].startswith("primary ")
    assert "\x1b" not in table
    red = to_table(replace(report(FOLLOWS, LATE, only_standbys=True), with_colour=True), is_first=True)
    assert [line.startswith("\x1b[1;31m") for line in red.splitlines()] == [False, True, False]


def test_each_trouble_is_one_sentence() -> None:
    assert all_troubles(known(FOLLOWS)) == []
    assert all_troubles(known(AWAY)) == ["nsqd d:4151: is not connected to its primary x:4150; it last heard from it 61 s ago"]
