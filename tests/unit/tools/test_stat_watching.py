"""The problems that nsq-stat's live table shows, round by round."""

from __future__ import annotations

from typing import Any

from nsq_tools.stat.checking import Watch
from nsq_tools.stat.program import PROGRAM
from nsq_tools.stat.rows import Name
from tests.unit.nsqadmin.test_views import Cluster2, channel, stats, topic

NOW_S, TIME_S = 1000.0, 1_700_000_000.0


class Watched:
    def __init__(self, *flags: str) -> None:
        self.cluster = Cluster2()
        self.watch = Watch(PROGRAM.read(["--nsqd-http-address=a:1", *flags]), self.cluster)

    def round(self, after_s: float, **answers: dict[str, Any]) -> list[str]:
        self.cluster.say(NOW_S + after_s, **answers)
        self.watch.note_round(NOW_S + after_s, TIME_S + after_s)
        return [
            f"{problem.kind} {problem.topic}/{problem.channel}{problem.node}"
            for problem in self.watch.problems
        ]


def test_the_worst_are_first_and_rows_have_their_worst_severity() -> None:
    orders = topic("orders", channel("mail", depth=2, paused=True), channel("billing", depth=3), depth=0)
    watched = Watched()
    assert watched.round(0, a=stats(orders, topic("users", depth=1))) == [
        "no_consumer orders/billing",
        "no_channel users/",
        "paused orders/mail",
    ]
    assert watched.watch.severities == {
        Name("orders", "billing"): "error",
        Name("users"): "warning",
        Name("orders", "mail"): "warning",
    }
    assert [problem.channel for problem in watched.watch.of_topic("orders")] == ["billing", "mail"]


def test_the_options_choose_topics_and_channels() -> None:
    answer = stats(topic("orders", channel("mail", depth=2), channel("billing", depth=3)))
    assert Watched("--filter=*/mail").round(0, a=answer) == ["no_consumer orders/mail"]
    assert Watched("--channel=billing").round(0, a=answer) == ["no_consumer orders/billing"]


def test_growth_takes_some_rounds() -> None:
    watched = Watched()
    found: list[str] = []
    for second in range(0, 20, 2):
        counts = {"depth": 100 * second, "message_count": 100 * second, "client_count": 1, "finish_count": 0}
        found = watched.round(second, a=stats(topic("t", channel("c", **counts, in_flight_count=1))))
        if second == 0:
            assert found == []
    assert "growing t/c" in found


def test_an_nsqd_that_ends_is_listed_when_it_lasts_and_a_clean_stop_is_no_error() -> None:
    watched = Watched()
    watched.round(0, a=stats(), b=stats())
    watched.cluster.fail(watched.cluster.nodes["b"], "refused")
    assert watched.round(2, a=stats()) == []
    assert watched.round(6, a=stats()) == ["node_failed /b"]
    list(watched.cluster.removing_node("b"))
    assert watched.round(8, a=stats()) == []
    assert watched.round(12, a=stats()) == ["node_gone /b"]
    watched.cluster.departed = frozenset({"b"})
    assert watched.round(14, a=stats()) == ["node_stopped /b"]
    assert watched.round(16, a=stats(), b=stats(start_time=2)) == []


def test_many_starts() -> None:
    watched = Watched()
    assert [watched.round(10 * start, a=stats(start_time=int(TIME_S) + start)) for start in range(4)][2:] == [
        [],
        ["restarts /a"],
    ]
