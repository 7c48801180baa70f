"""What needs attention: backlogs that grow, and what is wrong in the cluster, where and since when."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nsqadmin_py.cluster import views
from nsqadmin_py.cluster.attention import MOST_OF_KIND, Attention, FoundProblems
from nsqadmin_py.cluster.findings import Findings, VisibleCluster
from nsqadmin_py.cluster.last_known import NodeMemory
from nsqadmin_py.web.events import Reader
from nsqd_py.cluster.problems.finding import problems
from nsqd_py.cluster.problems.kinds import Problem
from nsqd_py.cluster.problems.limits import Limits
from nsqd_py.cluster.problems.trends import MOST_TRENDS, Trend, Trends
from nsqd_py.cluster.producers import SharedAddress
from nsqd_py.settings.kinds import ByTopic
from tests.unit.nsqadmin.test_views import ROUND_S, Cluster2, channel, stats, topic

EPOCH_S = 1_700_000_000.0


class Console:
    """A cluster and the findings about it; rounds of 2 s."""

    def __init__(self) -> None:
        self.cluster = Cluster2()
        self.findings = Findings()
        self.now_s = 100.0

    def say(self, **answers: dict[str, Any]) -> None:
        self.now_s += ROUND_S
        self.cluster.say(self.now_s, **answers)
        self.findings.note_round(self.cluster, self.now_s, EPOCH_S + self.now_s)

    def flow(self, rounds: int, came: int, finished: int, **counts: int) -> None:
        """Rounds in which messages come to channel c of topic t, and are finished; both per round."""
        for _ in range(rounds):
            part = self.cluster.topics.get("t")
            depth, messages = (part.channels["c"].counts[0], part.channels["c"].counts[4]) if part else (0, 0)
            done = self.cluster.nodes["a"].topics["t"].channels["c"].finished if part else 0
            depth += came - finished
            row = channel(
                "c",
                depth=depth,
                message_count=messages + came,
                finish_count=done + finished,
                **{"client_count": 1} | counts,
            )
            self.say(a=stats(topic("t", row)))

    def trend(self) -> Trend:
        trend = self.findings.trends.of("t", "c")
        assert trend is not None
        return trend

    def rows(self) -> list[dict[str, Any]]:
        return list(self.findings.attention.view().rows.values())

    def kinds(self) -> list[str]:
        return [row["kind"] for row in self.rows()]


# ---- backlogs


@pytest.mark.parametrize("backlog", [2_000, 1_000_000])
def test_a_backlog_grows_as_fast_as_more_comes_than_is_finished_however_long_it_is(backlog: int) -> None:
    console = Console()
    console.flow(1, backlog, 0)
    console.flow(40, 40, 20)
    assert console.trend().is_growing
    assert console.trend().growth == pytest.approx(10, rel=0.2)
    assert console.trend().drain_s is None
    (row,) = console.rows()
    assert (row["kind"], row["topic"], row["channel"]) == ("growing", "t", "c")
    assert re.search(
        r"and \S+/s are added on a \(\S+/s come, \S+/s are finished\); its consumers need", row["text"]
    )
    assert (
        views.channel(console.cluster, "t", "c", 0.0, console.findings).head["problems"][0]["word"]
        == "growing"
    )


def test_a_growing_channel_names_the_nsqds_on_which_it_grows() -> None:
    console = Console()
    for number in range(40):  # the backlog of `a` is larger, and shrinks
        shrinking = channel(
            "c", client_count=1, depth=9_000 - 20 * number, message_count=9_000, finish_count=20 * number
        )
        growing = channel(
            "c", client_count=1, depth=80 * number, message_count=100 * number, finish_count=20 * number
        )
        console.say(
            a=stats(topic("t", shrinking)), b=stats(topic("t", growing)), c=stats(topic("t", channel("c")))
        )
    (row,) = [row for row in console.rows() if row["kind"] == "growing"]
    assert "are added on b (" in row["text"]


def test_a_backlog_that_shrinks_is_drained_in_time() -> None:
    console = Console()
    console.flow(1, 10_000, 0)
    console.flow(60, 20, 120)
    depth = console.trend().depth
    assert console.trend().drain_s == pytest.approx(depth / 50, rel=0.1)
    assert not console.trend().is_growing
    assert console.kinds() == []


def test_a_backlog_of_a_moment_is_none() -> None:
    console = Console()
    console.flow(2, 1000, 1000)
    console.flow(2, 1100, 1000)  # 200 messages wait, and take 0.4 s
    assert not console.trend().is_growing
    assert console.trend().drain_s == pytest.approx(0.5, rel=0.2)


def test_messages_that_a_seek_brings_back_are_not_new() -> None:
    console = Console()
    row = channel("c", message_count=100_000, client_count=1, finish_count=100_000)
    console.say(a=stats(topic("t", row)))
    console.say(a=stats(topic("t", row | {"depth": 100_000})))
    console.say(a=stats(topic("t", row | {"depth": 99_000, "finish_count": 101_000})))
    assert not console.trend().is_growing


def test_a_burst_is_forgotten_after_half_a_minute() -> None:
    console = Console()
    console.flow(1, 1, 0)
    console.flow(1, 1_000_000, 1_000_000)
    console.flow(1, 1, 1)
    assert console.trend().came > 1000
    console.flow(16, 1, 1)  # 32 s
    assert console.trend().came == pytest.approx(0.5)
    console.flow(16, 0, 0)
    assert (console.trend().came, console.trend().finished) == (0.0, 0.0)


def test_a_channel_that_is_deleted_or_idle_has_no_trend() -> None:
    console = Console()
    console.flow(1, 10, 0)
    console.say(a=stats())
    assert console.findings.trends.of("t", "c") is None


# ---- problems


def test_messages_on_an_nsqd_to_which_no_consumer_is_connected() -> None:
    console = Console()
    console.say(
        a=stats(topic("t", channel("c", depth=5))), b=stats(topic("t", channel("c", depth=9, client_count=1)))
    )
    (row,) = console.rows()
    assert row["text"] == "5 messages wait on a, to which none of its consumers is connected"


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (topic("t", channel("c", paused=True, depth=2)), "paused", "The channel is paused; 2 messages wait"),
        (topic("t", channel("c"), paused=True), "paused", "The topic is paused; 0 messages wait in it"),
        (topic("t", depth=1), "no_channel", "1 message waits, and the topic has no channel"),
        (
            topic("t", channel("c", dropped_count=1200)),
            "dropped",
            "On a: 1,200 messages dropped, since there was no room in memory",
        ),
        (
            topic("t", dropped_count=2),
            "dropped",
            "On a: 2 messages dropped, since there was no room in memory",
        ),
        (
            topic("t", channel("c", dead_letter_error="the disk is full")),
            "dead_letters_refused",
            "On a: messages with too many attempts are delivered again, since the disk is full",
        ),
        (topic("t.dead", depth=3), "dead_letters", "3 dead letters of t wait"),
        (topic("t", damaged_bytes=1200), "damage", "On a: 1,200 bytes of its log cannot be read"),
        (
            topic("t", channel("c", lost_count=2)),
            "damage",
            "On a: 2 messages were lost, since they are damaged or missing",
        ),
    ],
)
def test_problems_of_topics_and_channels(answer: dict[str, Any], kind: str, text: str) -> None:
    console = Console()
    console.say(a=stats(answer))
    (row,) = console.rows()
    assert (row["kind"], row["text"], bool(row["advice"])) == (kind, text, True)


def test_a_disk_that_is_nearly_full() -> None:
    console = Console()
    console.say(a=stats() | {"disk_left_percent": 7}, b=stats())
    (row,) = console.rows()
    assert (row["kind"], row["node"]) == ("disk", "a")
    assert row["text"].startswith("has 7 % left of its disk")
    console.say(a=stats(), b=stats())
    assert console.rows() == []
    console.say(a=stats() | {"disk_left_percent": 0}, b=stats())
    assert [(row["kind"], row["severity"]) for row in console.rows()] == [("disk_full", "error")]


@pytest.mark.parametrize(
    ("ahead_s", "texts"),
    [
        (29, []),
        (-29, []),
        (30, ["has a clock that is 30 s ahead of that of nsqadmin"]),
        (-300, ["has a clock that is 5 min behind that of nsqadmin"]),
    ],
)
def test_an_nsqd_with_another_time(ahead_s: int, texts: list[str]) -> None:
    console = Console()
    console.cluster.add_node("a", {}).clock_ahead_s = ahead_s
    console.say(a=stats())
    assert [row["text"] for row in console.rows()] == texts


def test_two_nsqds_that_announce_one_address() -> None:
    console = Console()
    console.cluster.shared = {"a:1": SharedAddress("a", 2, ("orders", "t"))}
    console.say(a=stats(topic("t")))
    (row,) = console.rows()
    assert (row["kind"], row["severity"], row["node"]) == ("same_address", "error", "a")
    text = "2 nsqds announce the address a:1, at which only one can be reached"
    assert row["text"] == f"{text}; topics that only the others have: orders"
    seen = VisibleCluster(console.cluster, lambda name: name != "orders")
    assert [problem.text for problem in problems(seen, NodeMemory(), Trends(), 0.0, EPOCH_S)] == [text]


def test_the_channel_that_nsqadmin_made_for_dead_letters_lacks_no_consumer() -> None:
    console = Console()
    row = channel("nsqadmin", message_count=100, depth=100)
    console.say(a=stats(topic("t.dead", row)))
    for number in range(1, 4):
        counts = {"requeue_count": 76 * number, "finish_count": 24 * number, "timeout_count": 10 * number}
        console.say(a=stats(topic("t.dead", row | counts)))
        assert console.kinds() == ["dead_letters"]
    console.say(a=stats(topic("t", channel("nsqadmin", depth=1))))
    assert console.kinds() == ["no_consumer"]


def test_a_consumer_that_times_out_and_one_that_requeues() -> None:
    console = Console()
    row = channel("c", message_count=1000, client_count=1, in_flight_count=10)
    console.say(a=stats(topic("t", row)))
    for number in range(1, 10):
        assert console.kinds() != ["timing_out", "requeueing"]
        counts = {"timeout_count": 2 * number, "requeue_count": 20 * number, "finish_count": 20 * number}
        console.say(a=stats(topic("t", row | {"message_count": 1000 + 20 * number} | counts)))
    assert console.kinds() == ["timing_out", "requeueing"]
    assert console.rows()[1]["text"] == "9.47/s are requeued: 50 % of all deliveries"


def test_rare_time_outs_and_requeues_are_normal() -> None:
    console = Console()
    row = channel("c", client_count=1)
    for number in range(30):
        counts = {"timeout_count": number, "requeue_count": number, "finish_count": 1000 * number}
        console.say(a=stats(topic("t", row | {"message_count": 1000 * number} | counts)))
    assert console.kinds() == []


def waiting(**counts: Any) -> dict[str, Any]:
    return stats(topic("t", channel("c", **{"depth": 5, "client_count": 1, "message_count": 9} | counts)))


def test_consumers_that_finish_nothing_for_a_minute_are_stuck() -> None:
    console = Console()
    console.say(a=waiting(in_flight_count=1))
    for _ in range(29):
        console.say(a=waiting(in_flight_count=1))
        assert console.kinds() == []
    console.say(a=waiting(in_flight_count=1))
    (row,) = console.rows()
    assert (row["kind"], row["severity"]) == ("stuck", "error")
    held = "1 message in flight to 1 consumer, and none of them is answered"
    assert row["text"] == f"5 messages wait, and nothing was finished for 1 min: {held}"
    console.say(a=waiting(in_flight_count=1, finish_count=1, message_count=10))
    assert console.kinds() == []


@pytest.mark.parametrize("counts", [{"client_count": 0}, {"paused": True}, {"depth": 0}])
def test_stuck_counts_from_when_messages_can_flow(counts: dict[str, Any]) -> None:
    console = Console()
    for _ in range(35):
        console.say(a=waiting(**counts))
    for _ in range(30):
        console.say(a=waiting())
        assert "stuck" not in console.kinds()
    console.say(a=waiting())
    assert console.kinds() == ["stuck"]
    assert "RDY is 0: 1 consumer asks for no messages" in console.rows()[0]["text"]


def test_stuck_says_what_is_done_in_place_of_finishing() -> None:
    for name, text in (
        ("timeout_count", "deliveries time out (0.5/s)"),
        ("requeue_count", "1 consumer has requeued all"),
    ):
        console = Console()
        for number in range(45):
            console.say(a=waiting(**{name: number, "in_flight_count": 1}))
        (stuck,) = [row for row in console.rows() if row["kind"] == "stuck"]
        assert text in stuck["text"]
        assert "growing" not in console.kinds()


def test_the_time_outs_of_one_moment_are_those_of_a_consumer_that_was_restarted() -> None:
    console = Console()
    row = channel("c", client_count=1, message_count=100)
    console.say(a=stats(topic("t", row)))
    for number in range(40):
        counts = {"timeout_count": min(3, number), "finish_count": number}
        console.say(a=stats(topic("t", row | counts | {"message_count": 100 + number})))
        assert console.kinds() == []


def test_consumers_have_time_to_come_back() -> None:
    console = Console()
    console.say(a=waiting(depth=0))
    left = waiting(client_count=0, depth=3)
    for _ in range(15):
        console.say(a=left)
        assert console.kinds() == []
    console.say(a=left)
    assert console.kinds() == ["no_consumer"]


def test_consumers_have_time_to_find_an_nsqd_that_has_come_back() -> None:
    console = Console()
    for _ in range(2):
        console.say(a=waiting(depth=0))
    assert console.cluster.is_settled
    for _ in range(45):
        console.say(a=waiting(depth=0), b=waiting(client_count=0))
        assert console.kinds() == []
    console.say(a=waiting(depth=0), b=waiting(client_count=0))
    assert console.kinds() == ["no_consumer"]


def test_a_drain_says_how_long_it_takes() -> None:
    console = Console()
    for left in (1300, 1200, 1100, 1000):
        answer = stats() | {"draining": True, "drain_messages_left": left, "health": "NOK - draining"}
        console.say(a=answer, b=stats())
    (row,) = console.rows()
    assert (row["kind"], row["severity"], row["text"]) == (
        "draining",
        "info",
        "drains: 1,000 messages left, about 20 s",
    )
    assert console.findings.attention.view().head["infos"] == 1
    # Of a user who may not see counts of all topics.
    seen = VisibleCluster(console.cluster, lambda name: True)
    assert list(problems(seen, NodeMemory(), Trends(), console.now_s, EPOCH_S)) == []


def test_an_nsqd_that_was_started_four_times_in_ten_minutes() -> None:
    console = Console()
    for start in range(4):
        assert console.kinds() == []
        console.say(a=stats(start_time=int(EPOCH_S) + 100 + start))
    (row,) = console.rows()
    assert (row["kind"], row["text"]) == ("restarts", "was started 4 times within 8 s")
    for _ in range(300):
        console.say(a=stats(start_time=int(EPOCH_S) + 103))
    assert console.kinds() == []


def test_nsqds_of_several_versions() -> None:
    """An upgrade is planned work. Go's nsqd reports no version of this project, and does not count."""
    console = Console()
    same = {node: stats() | {"project_version": "1.0.1"} for node in "abcde"}
    console.say(**same, go=stats())
    assert console.kinds() == []
    console.say(**same | {node: stats() | {"project_version": "1.0.0rc1"} for node in "ae"}, go=stats())
    (row,) = console.rows()
    assert (row["kind"], row["severity"]) == ("versions", "info")
    assert row["text"] == "3 of 5 nsqds run 1.0.1; the others: 2 run 1.0.0rc1"


def test_old_messages_have_a_limit_by_topic() -> None:
    console = Console()
    console.findings.limits = Limits(ByTopic(600 * 10**9, (("slow.*", 3600 * 10**9),)))
    oldest_ns = int((EPOCH_S + 100 - 1800) * 1e9)
    row = channel("c", depth=9, client_count=1, finish_count=5, message_count=9, oldest_timestamp=oldest_ns)
    console.say(a=stats(topic("t", row), topic("slow.t", row), topic("t.dead", row)))
    found = [(row["kind"], row["topic"]) for row in console.rows()]
    assert found == [("old", "t"), ("dead_letters", "t.dead")]


def test_an_nsqd_that_one_nsqlookupd_misses() -> None:
    console = Console()
    console.cluster.heard_lookups = ("l1:4161", "l2:4161", "l3:4161")
    console.cluster.failed_lookups = {"l3:4161": "refused"}
    console.cluster.lookups = 3
    console.cluster.add_node("a", {"remote_addresses": ["l1:4161/1.2.3.4:5"]})
    list(console.cluster.observing(console.cluster.nodes["a"], stats(), 1.0))
    console.findings.note_round(console.cluster, 1.0, EPOCH_S)
    assert console.kinds() == ["lookup_failed", "node_half_listed"]
    assert console.rows()[1]["text"] == "is listed by l1:4161, and not by l2:4161"


def test_problems_that_pass_by_themselves_are_listed_when_they_last() -> None:
    console = Console()
    console.say(a=stats())
    console.cluster.nodes["a"].is_listed = False
    for _ in range(10):
        console.say(a=stats())
        assert console.kinds() == []
        assert console.findings.attention.counts.total() == 0
    console.say(a=stats())
    assert console.kinds() == ["node_unlisted"]


# ---- since when


def test_a_problem_that_was_there_at_the_start_began_then_or_earlier() -> None:
    console = Console()
    idle, waiting = stats(topic("t", channel("c"))), stats(topic("t", channel("c", depth=1)))
    console.say(a=waiting)
    began_s = EPOCH_S + console.now_s
    console.say(a=waiting)
    assert [(row["since_s"], row["is_since_exact"]) for row in console.rows()] == [(began_s, False)]
    console.say(a=idle)
    assert console.rows() == []
    console.say(a=waiting)
    assert [(row["since_s"], row["is_since_exact"]) for row in console.rows()] == [
        (EPOCH_S + console.now_s, True)
    ]


# ---- causes


def many(count: int, kind: str = "paused", cause: str = "", **place: str) -> list[Problem]:
    return [Problem(kind, kind, f"t{n:04}", weight=n, cause=cause, **place) for n in range(count)]


def rows_of(*problems: Problem) -> tuple[list[tuple[str, int, str]], dict[str, int]]:
    view = Attention(FoundProblems(problems), 1.0).view()
    return [(row["kind"], row["count"], row["places"]) for row in view.rows.values()], view.head


def test_causes_are_kept_apart_and_a_few_problems_are_rows() -> None:
    assert rows_of(
        *many(4, "damage", "a"), *many(3, "damage", "b", channel="c"), *many(4), *many(1, "growing")
    )[0] == [
        ("damage", 4, "4 topics"),
        ("damage", 1, ""),
        ("damage", 1, ""),
        ("damage", 1, ""),
        ("growing", 1, ""),
        ("paused", 4, "4 topics"),
    ]
    apart = [
        Problem("node_failed", "failed", node=f"n{number}", cause=f"reason {number}") for number in range(6)
    ]
    assert rows_of(*apart)[0] == [("node_failed", 6, "6 nsqds")]
    lookups = [Problem("no_lookup", "dead", node=f"l{number}") for number in range(4)]
    assert rows_of(*lookups)[0] == [("no_lookup", 4, "4 nsqlookupds")]


def test_no_error_is_hidden_by_others() -> None:
    rows, head = rows_of(*many(MOST_OF_KIND + 5), *many(2 * MOST_OF_KIND, "no_consumer"), *many(1, "damage"))
    assert rows == [
        ("damage", 1, ""),
        ("no_consumer", 2 * MOST_OF_KIND, f"at least {MOST_OF_KIND:,} topics"),
        ("paused", MOST_OF_KIND + 5, f"at least {MOST_OF_KIND:,} topics"),
    ]
    assert head == {"total": 3, "errors": 2, "warnings": 1, "infos": 0, "problems": 3 * MOST_OF_KIND + 6}


def test_a_row_of_many_problems_changes_with_each_of_them() -> None:
    reader, before = Reader(), None
    for tick, count in enumerate((5, 5, 4)):
        before = Attention(FoundProblems(many(count)), float(tick), before)
        assert (reader.news(before.view()) is None) == (tick == 1)


def test_a_disk_that_refuses_publishes_is_one_problem() -> None:
    console = Console()
    for left, kind in ((0, "disk_full"), (3, "unhealthy")):
        console.say(a=stats() | {"disk_left_percent": left, "health": "NOK - disk: limit"})
        (row,) = console.rows()
        text = f"reports: NOK - disk: limit; it has {left} % left of its disk, or of the limit that it has been given"
        assert (row["kind"], row["text"]) == (kind, text)


def test_a_channel_follows_a_limited_number_of_trends() -> None:
    console = Console()
    console.say(a=stats(*(topic(str(number), channel("c", depth=1)) for number in range(MOST_TRENDS + 5))))
    assert console.findings.trends.of(str(MOST_TRENDS - 1), "c") is not None
    assert console.findings.trends.of(str(MOST_TRENDS), "c") is None
