"""nsq-stat's lines for pipes and scripts: Go's, JSON, CSV and tables."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from nsq_tools.stat.export import Report, go_line, to_json
from nsq_tools.stat.options import TABLE
from nsq_tools.stat.program import PROGRAM
from nsq_tools.stat.reports import Reports
from nsq_tools.stat.rows import Name, Row
from nsqd_py.cluster.counts import ChannelCounts, Rates
from nsqd_py.cluster.roles import FOLLOWING, Lag, Pair
from nsqd_py.settings.program import FAILED
from tests.unit.fakes import FakeLog
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
