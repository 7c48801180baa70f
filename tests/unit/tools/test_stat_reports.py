"""nsq-stat's lines for pipes and scripts: Go's, JSON, CSV and tables."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from nsq_tools.stat.export import Report, go_line, to_json
from nsq_tools.stat.options import TABLE
from nsq_tools.stat.program import PROGRAM
from nsq_tools.stat.reports import Reports
from nsq_tools.stat.rows import Name, Row
from nsqd_py.cluster.counts import ChannelCounts, Rates
from nsqd_py.cluster.roles import FOLLOWING, Lag, Pair
from nsqd_py.settings.program import DONE, FAILED
from tests.unit.cluster.test_stores import STORE
from tests.unit.fakes import FakeLog
from tests.unit.nsqadmin.test_views import Cluster2, stats
from tests.unit.tools.stat_rows import counts

COUNTS = ChannelCounts(12, 5, in_flight=3, deferred=2, messages=100, requeued=4, timed_out=6, clients=7)
RATES = Rates(messages=10_000, finished=8000, growth=1500)
CHANNEL = Row(Name("orders", "archive"), "", COUNTS, RATES, is_paused=True)
TOPIC = Row(Name("orders"), "10.0.0.1:4151", counts(messages=100), None, is_paused=False)


# --- Go's


def test_rates_are_cut_off_towards_zero() -> None:
    before, after = counts(messages=10, depth=10), counts(messages=13, depth=16)
    assert go_line(before, after, 2.0).startswith("      1      -1 |")


# --- for scripts


REPORT = Report(1700000000.1234, [CHANNEL, TOPIC], nodes=["10.0.0.1:4151"], failed=[("10.0.0.2:4151", "no")])


def test_json_is_an_object_on_a_line() -> None:
    text = to_json(REPORT, is_first=True)
    assert text.count("\n") == 1
    document = json.loads(text)
    assert document["time"] == 1700000000.123
    assert document["nodes"] == ["10.0.0.1:4151"]
    assert document["failed"] == [{"address": "10.0.0.2:4151", "reason": "no"}]
    assert document["rows"][0] == {
        "topic": "orders",
        "channel": "archive",
        "node": "",
        "in_per_s": 10,
        "out_per_s": 8.5,
        "finished_per_s": 8.0,
        "depth": 12,
        "memory_depth": 7,
        "backend_depth": 5,
        "in_flight": 3,
        "deferred": 2,
        "requeued": 4,
        "timed_out": 6,
        "messages": 100,
        "clients": 7,
        "paused": True,
        "oldest_age_s": None,
        "drain_s": None,
    }
    assert document["rows"][1]["in_per_s"] is None


def test_once_says_each_trouble_of_a_standby_that_two_primaries_list() -> None:
    lag = Lag(1, 1, 60_000)
    pairs = [Pair(primary, "s:1", True, FOLLOWING, True, lag, 0, 1, 0, False) for primary in ("a:1", "b:1")]
    cluster = SimpleNamespace(pairs=lambda: pairs, nodes={}, failed_lookups={})
    poller: Any = SimpleNamespace(cluster=cluster, round=lambda *, waits_for_all: None)
    model: Any = SimpleNamespace(rows=[])
    log: Any = FakeLog()
    options = PROGRAM.read(["--once", "--nsqd-http-address=a:1"])
    assert Reports(options, poller, model, log).run(TABLE) == FAILED
    lacks = "nsqd s:1: lacks what its primary"
    assert log.errors == [f"{lacks} {primary} has had for 60 s" for primary in ("a:1", "b:1")]


def report_of(capsys: pytest.CaptureFixture[str], form: str, **nodes: dict[str, Any]) -> tuple[int, str, Any]:
    """Return the exit status, the output and the log of `nsq-stat --once` for these answers of /stats."""
    cluster = Cluster2()
    cluster.say(1000.0, **nodes)
    poller: Any = SimpleNamespace(cluster=cluster, round=lambda *, waits_for_all: None)
    model: Any = SimpleNamespace(rows=[])
    log: Any = FakeLog()
    status = Reports(PROGRAM.read(["--once", "--nsqd-http-address=a:1"]), poller, model, log).run(form)
    return status, capsys.readouterr().out, log


def test_once_shows_each_store_and_fails_if_one_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = report_of(capsys, "json", a=stats(), b=stats() | {"store": STORE})
    assert status == DONE
    assert json.loads(text)["stores"] == [
        {
            "node": "b",
            "store": "s3://b/p",
            "state": "storing",
            "lag_messages": 3,
            "lag_bytes": 400,
            "lag_s": 0.9,
            "acks": 0,
            "objects": 7,
            "size_bytes": 8000,
            "requests_today": 90,
            "epoch": 2,
            "trouble": "",
        }
    ]
    away = STORE | {"away_ms": 90_000, "state": "away\n"}
    status, text, log = report_of(capsys, TABLE, a=stats() | {"store": STORE}, b=stats() | {"store": away})
    assert status == FAILED
    trouble = "has had no answer from its store s3://b/p for 90 s"
    assert log.errors == [f"nsqd b: {trouble}"]
    header, first, second = text.split("\n\n")[1].splitlines()
    assert header.split()[:3] == ["node", "store", "state"]
    assert (first.split()[0], second.split()[0]) == ("b", "a")
    assert first.endswith(trouble)


def test_no_store_is_shown_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "store" not in report_of(capsys, "json", a=stats())[1]
    assert "store" not in report_of(capsys, TABLE, a=stats())[1]
