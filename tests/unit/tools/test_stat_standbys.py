"""Primaries and standbys in nsq-stat's reports."""

from __future__ import annotations

import csv
import io
import json

from nsq_tools.stat.export import Report, Standbys, all_troubles, to_csv, to_json, to_table, with_troubles
from nsqd_py.cluster.roles import Lag, Pair

FOLLOWS = Pair("a:4151", "b:4151", True, "following", True, Lag(3, 400, 200), 0, 2, 1, False)
LATE = FOLLOWS._replace(standby="c:4151", lag=Lag(12_345, 6_000_000, 20_500))
AWAY = FOLLOWS._replace(primary="x:4150", standby="d:4151", state="connecting", as_of_ms=61_000, primary_answers=False)
NONE = FOLLOWS._replace(primary="e:4151", standby="", state="missing", acks=0)


def known(*pairs: Pair) -> Standbys:
    return with_troubles(pairs, 10.0)


def report(*pairs: Pair, only_standbys: bool = False) -> Report:
    return Report(12.5, [], ["a:4151"], (), known(*pairs), only_standbys)


def test_without_standbys_nothing_is_shown() -> None:
    assert "standbys" not in json.loads(to_json(report(), is_first=True))
    assert to_table(report(only_standbys=True), is_first=True) == "no standbys\n"


def test_reports_have_a_row_for_each_pair() -> None:
    (late, follows) = csv.DictReader(io.StringIO(to_csv(report(FOLLOWS, LATE, only_standbys=True), is_first=True)))
    assert (late["time"], late["standby"], late["lag_s"], follows["lag_messages"]) == ("12.500", "c:4151", "20.5", "3")
    (row,) = json.loads(to_json(report(NONE), is_first=True))["standbys"]
    assert (row["standby"], row["state"], row["trouble"]) == ("", "missing", "accepts standbys, and none follows it")
    table = to_table(report(LATE), is_first=True)
    assert table.startswith("topic ")
    assert table.splitlines()[2].startswith("primary ")


def test_each_trouble_is_one_sentence() -> None:
    assert all_troubles(known(FOLLOWS)) == []
    assert all_troubles(known(AWAY)) == ["nsqd d:4151: is not connected to its primary x:4150; it last heard from it 61 s ago"]
