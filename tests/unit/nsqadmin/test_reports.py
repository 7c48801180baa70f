"""Reports about problems: when one begins, when it ends, and what is not reported."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest

from nsqadmin_py.cluster.attention import Attention, FoundProblems
from nsqadmin_py.cluster.last_known import NodeMemory
from nsqadmin_py.cluster.reports import BEGAN, BEGINS_AFTER_S, ENDED, MOST_OF_KIND, ProblemReports, Report
from nsqd_py.cluster.problems.kinds import Problem
from nsqd_py.cluster.problems.memory import LastKnown
from tests.unit.nsqadmin.test_views import Cluster2, channel, stats, topic

QUIET_S = 120.0
ROUND_S = 2.0
STUCK = Problem("stuck", "7 messages wait", "orders", "billing")
DISK = Problem("disk", "has 5 % left", node="a")


class Observer:
    """Rounds in which problems are there, and a receiver that takes all reports while `is_up`."""

    def __init__(self, quiet_s: float = QUIET_S, now_s: float = 1000.0) -> None:
        self.reports = ProblemReports(quiet_s)
        self.cluster = Cluster2()
        orders = topic("orders", channel("billing"))
        self.cluster.say(1.0, a=stats(orders), b=stats(orders, topic("users", channel("billing"))))
        self.memory = NodeMemory()
        self.now_s = now_s
        self.is_up = True
        self.before: Attention | None = None
        self.got: list[tuple[str, str]] = []

    def round(self, *problems: Problem) -> None:
        self.now_s += ROUND_S
        self.before = Attention(FoundProblems(problems), self.now_s, self.before)
        self.reports.note_round(self.before, self.cluster, self.memory, self.now_s)
        if self.is_up:
            for report in self.reports.due():
                self.take(report)

    def take(self, report: Report) -> None:
        self.reports.note_delivered(report)
        self.got.append((report.event, report.key))

    def span(self, seconds: float, *problems: Problem) -> None:
        for _ in range(int(seconds / ROUND_S)):
            self.round(*problems)

    def taken(self) -> list[tuple[str, str]]:
        got, self.got = self.got, []
        return got


def test_one_report_when_it_begins_and_one_when_it_has_ended() -> None:
    observer = Observer()
    observer.span(BEGINS_AFTER_S, STUCK)
    assert observer.taken() == []
    observer.span(3600, STUCK)
    assert observer.taken() == [(BEGAN, "stuck|orders|billing|")]
    observer.span(QUIET_S - ROUND_S)
    assert observer.taken() == []
    observer.span(3600)
    assert observer.taken() == [(ENDED, "stuck|orders|billing|")]
    observer.span(20, STUCK)
    assert observer.taken() == [(BEGAN, "stuck|orders|billing|")]


def test_a_flap_is_one_problem() -> None:
    observer = Observer()
    for _ in range(20):
        observer.span(20, STUCK)
        observer.span(QUIET_S - 10)
    observer.span(QUIET_S)
    assert observer.taken() == [(BEGAN, STUCK.key), (ENDED, STUCK.key)]


def test_a_moment_is_no_problem_and_a_quick_flap_is_one() -> None:
    observer = Observer()
    observer.round(STUCK)
    observer.span(60)
    assert observer.taken() == []
    for _ in range(10):
        observer.span(4, STUCK)
        observer.span(4)
    assert observer.taken() == [(BEGAN, STUCK.key)]


def test_planned_work_is_not_reported() -> None:
    observer = Observer()
    observer.span(60, Problem("draining", "drains", node="a"), Problem("versions", "1 of 2"))
    assert observer.taken() == []


def test_what_changes_in_a_problem_is_not_reported() -> None:
    observer = Observer()
    for number in range(20):
        observer.span(4, STUCK._replace(text=f"{number} messages wait", weight=number, cause=str(number)))
    assert observer.taken() == [(BEGAN, STUCK.key)]


# ---- a receiver that is away


def test_a_receiver_that_was_away_gets_the_present_state_only() -> None:
    observer = Observer()
    observer.span(20, DISK)
    observer.is_up = False
    for number in range(1000):
        observer.span(14, STUCK._replace(topic=f"t{number}"))
    observer.span(QUIET_S)
    observer.span(20, STUCK)
    observer.is_up = True
    observer.round(STUCK)
    assert observer.taken() == [(BEGAN, DISK.key), (ENDED, DISK.key), (BEGAN, STUCK.key)]


def test_a_beginning_that_the_receiver_may_have_got_is_ended_too() -> None:
    observer = Observer()
    observer.is_up = False
    observer.span(20, STUCK)
    (report,) = observer.reports.due()
    observer.reports.note_unclear(report)
    observer.round(STUCK)
    assert [report.event for report in observer.reports.due()] == [BEGAN]  # tried again
    observer.span(QUIET_S + ROUND_S)
    assert [report.event for report in observer.reports.due()] == [ENDED]


def test_an_end_that_the_receiver_may_have_got_is_followed_by_a_new_beginning() -> None:
    observer = Observer()
    observer.span(20, STUCK)
    observer.is_up = False
    observer.span(QUIET_S + ROUND_S)
    (report,) = observer.reports.due()
    assert report.event == ENDED
    observer.reports.note_unclear(report)
    observer.round(STUCK)
    assert [report.event for report in observer.reports.due()] == [BEGAN]


def test_a_report_that_is_not_true_any_more_is_not_due() -> None:
    observer = Observer()
    observer.is_up = False
    observer.span(20, STUCK)
    (report,) = observer.reports.due()
    assert observer.reports.is_due(report)
    observer.round()
    assert not observer.reports.is_due(report)


# ---- many problems


def test_many_problems_of_a_kind_are_few_reports() -> None:
    observer = Observer()
    many = [STUCK._replace(topic=f"t{number}") for number in range(3000)]
    observer.span(60, *many)
    events = Counter(event for event, _ in observer.got)
    assert events == {BEGAN: MOST_OF_KIND + 1}
    assert (BEGAN, "stuck|*||") in observer.taken()
    # The worst may be others now: those that were reported stay, and what the list leaves out has not ended.
    observer.span(600, *(problem._replace(weight=number) for number, problem in enumerate(many)))
    assert observer.taken() == []
    observer.span(QUIET_S + ROUND_S)
    assert Counter(event for event, _ in observer.taken()) == {ENDED: MOST_OF_KIND + 1}
    assert observer.reports.dump() == []


def test_the_next_one_is_reported_when_one_has_ended() -> None:
    observer = Observer()
    many = [STUCK._replace(topic=f"t{number:02}") for number in range(MOST_OF_KIND + 1)]
    observer.span(60, *many)
    assert len(observer.taken()) == MOST_OF_KIND + 1
    observer.span(QUIET_S + 20, *many[1:])
    observer.span(QUIET_S, *many[1:])
    assert sorted(observer.taken()) == [(BEGAN, many[-1].key), (ENDED, "stuck|*||"), (ENDED, many[0].key)]


# ---- what nobody can see


@pytest.mark.parametrize("problem", [STUCK, DISK])
def test_a_problem_goes_on_while_its_nsqd_does_not_answer(problem: Problem) -> None:
    observer = Observer()
    observer.span(20, problem)
    failed = Problem("node_failed", "does not answer", node="a")
    observer.memory.nodes["a"] = LastKnown("a", 0.0, is_silent=True)
    observer.span(3600, failed)
    assert observer.taken() == [(BEGAN, problem.key), (BEGAN, failed.key)]
    observer.memory.nodes["a"].is_gone = True
    observer.span(3600)
    assert observer.taken() == [(ENDED, failed.key)]
    observer.memory.nodes["a"].has_left = True
    observer.span(QUIET_S + ROUND_S)
    assert observer.taken() == [(ENDED, problem.key)]


def test_an_nsqd_that_does_not_answer_concerns_no_other_problem() -> None:
    observer = Observer()
    users = STUCK._replace(topic="users")
    observer.span(20, users)
    observer.memory.nodes["a"] = LastKnown("a", 0.0, is_silent=True)
    observer.span(QUIET_S + ROUND_S)
    assert observer.taken() == [(BEGAN, users.key), (ENDED, users.key)]


# ---- restarts, and several nsqadmins


def test_a_restart_repeats_nothing_and_forgets_no_end() -> None:
    observer = Observer()
    observer.span(20, STUCK, DISK)
    observer.taken()
    document = orjson.loads(orjson.dumps(observer.reports.dump()))
    later = Observer(now_s=observer.now_s + 3600)
    later.reports.load(document, later.now_s)
    later.span(QUIET_S + ROUND_S, STUCK)
    assert later.taken() == [(ENDED, DISK.key)]
    later.span(QUIET_S + ROUND_S)
    assert later.taken() == [(ENDED, STUCK.key)]


@pytest.mark.parametrize(
    "document",
    [
        None,
        5,
        [5],
        [{}],
        [{"problem": {"kind": "x"}, "since_s": 1}],
        [{"problem": {"kind": "stuck"}, "since_s": "1"}],
    ],
)
def test_a_document_of_any_form_is_read(document: Any) -> None:
    reports = ProblemReports(QUIET_S)
    reports.load(document, 1.0)
    assert reports.dump() == []


def test_two_nsqadmins_give_a_problem_the_same_key() -> None:
    keys = []
    for problem in (STUCK, STUCK._replace(text="8 messages wait", cause="x"), STUCK._replace(node="n" * 300)):
        observer = Observer()
        observer.is_up = False
        observer.span(20, problem)
        keys += [report.dedup_key for report in observer.reports.due()]
    assert keys[:2] == ["stuck|orders|billing|"] * 2
    assert len(keys[2]) <= 255
