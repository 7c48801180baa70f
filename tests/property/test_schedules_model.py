"""Schedulers that start, stop and are killed at any moment: each occurrence runs, and runs once unless something was killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.work.timed.occurrences import Every
from nsqd_py.work.timed.tokens import FOREIGN_S, LISTEN_S, LONGEST_FOREIGN_WAIT_S, OVERDUE_S, SETTLE_S
from tests.property.simulated_schedulers import MISSING_S, Cluster, Killed
from tests.support.examples import examples

PERIODS_S = {"ones": 1, "fives": 5, "twenties": 20, "minutes": 60, "rare": 200}
SCHEDULES = {name: Every(timedelta(seconds=period_s)) for name, period_s in PERIODS_S.items()}
# The turns of a scheduler here are slow and at random, so an occurrence may be late by more than a second.
STEADY = ("fives", "twenties", "minutes")
SLOW = ("twenties", "minutes")  # slower than what makes an occurrence late at the start of a scheduler
FIRST_S = LISTEN_S + SETTLE_S + 1  # until the first occurrence that a scheduler promises at its start
# A token that a scheduler renews at its start, which the next one renews at its own start.
MOST_LATE_S = 3 * (SETTLE_S + 1)
UNTIL_MISSED_S = OVERDUE_S + MISSING_S + MOST_LATE_S

SEEDS = st.integers(0, 2**32)
NSQDS = st.integers(1, 2)
# (what, which scheduler, how long until the next change)
Change = tuple[str, int, float]


def changes(*kinds: str) -> st.SearchStrategy[list[Change]]:
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 9), st.floats(0.1, 25)), max_size=12)


def due_between(schedule: str, from_s: float, until_s: float) -> Iterable[int]:
    period_s = PERIODS_S[schedule]
    return range((int(from_s) // period_s + 1) * period_s, int(until_s), period_s)


def times_run(cluster: Cluster) -> Counter[tuple[str, int]]:
    return Counter((schedule, due_s) for schedule, due_s, _ in cluster.jobs)


def assert_once(cluster: Cluster) -> None:
    assert [each for each, times in times_run(cluster).items() if times > 1] == []


def assert_all_ran(cluster: Cluster, schedules: Iterable[str], from_s: float, until_s: float) -> None:
    ran = times_run(cluster)
    for schedule in schedules:
        missing = [due_s for due_s in due_between(schedule, from_s, until_s) if not ran[schedule, due_s]]
        assert not missing, (schedule, missing)


def assert_in_time(cluster: Cluster, schedules: Iterable[str]) -> None:
    for schedule, due_s, ran_s in cluster.jobs:
        if schedule in schedules:
            assert -1.0 <= ran_s - due_s <= MOST_LATE_S, (schedule, due_s, ran_s)


def change(cluster: Cluster, kind: str, which: int) -> None:
    others = cluster.schedulers[1:]
    if kind == "start" and len(others) < 4:
        cluster.start(SCHEDULES)
    if kind == "stop" and others:
        cluster.end(others[which % len(others)])
    if kind == "kill" and cluster.schedulers:
        cluster.schedulers[which % len(cluster.schedulers)].dies_at = Killed(1 + which % len(Killed))


@settings(max_examples=examples(100))
@given(SEEDS, NSQDS, changes("start", "stop"))
def test_without_failures_each_occurrence_runs_once_and_in_time(
    seed: int, nsqds: int, what: list[Change]
) -> None:
    cluster = Cluster(seed, nsqds)
    cluster.start(SCHEDULES)  # and stays
    from_s = cluster.now_s + FIRST_S
    for kind, which, duration_s in what:
        change(cluster, kind, which)
        cluster.run(duration_s)
    quiet_s = cluster.now_s + MOST_LATE_S
    cluster.run(90)
    assert_once(cluster)
    assert_in_time(cluster, SLOW)
    assert_all_ran(cluster, SLOW, from_s, cluster.now_s - MOST_LATE_S)
    assert_all_ran(cluster, STEADY, quiet_s, cluster.now_s - MOST_LATE_S)


@settings(max_examples=examples(100))
@given(SEEDS, NSQDS, changes("start", "stop", "kill"))
def test_with_kills_each_occurrence_runs(seed: int, nsqds: int, what: list[Change]) -> None:
    cluster = Cluster(seed, nsqds)
    cluster.start(SCHEDULES)
    from_s = cluster.now_s + FIRST_S
    for kind, which, duration_s in what:
        change(cluster, kind, which)
        if all(scheduler.dies_at for scheduler in cluster.schedulers):
            cluster.start(SCHEDULES)
        cluster.run(duration_s)
    if not any(scheduler.dies_at is None for scheduler in cluster.schedulers):
        cluster.start(SCHEDULES)
    cluster.run(90)
    assert_all_ran(cluster, SLOW, from_s, cluster.now_s - MOST_LATE_S)


@settings(max_examples=examples(100))
@given(SEEDS, NSQDS, st.integers(1, 3), st.floats(FIRST_S, 199), st.floats(1, 150))
def test_an_occurrence_that_nobody_was_there_for_runs_once_and_late(
    seed: int, nsqds: int, count: int, before_s: float, away_s: float
) -> None:
    cluster = Cluster(seed, nsqds)
    for _ in range(count):
        cluster.start(SCHEDULES)
    cluster.run(before_s)  # a token of "rare" waits for 1,000,200
    for scheduler in cluster.schedulers[:]:
        cluster.end(scheduler)
    cluster.run(200 - before_s + away_s)
    began_s = cluster.now_s
    for _ in range(count):
        cluster.start(SCHEDULES)
    cluster.run(400)
    assert_once(cluster)
    rare = [(due_s, ran_s) for name, due_s, ran_s in cluster.jobs if name == "rare"]
    assert [due_s for due_s, _ in rare] == [1_000_200, 1_000_400, 1_000_600][: len(rare)]
    assert began_s < rare[0][1] < began_s + LISTEN_S + MOST_LATE_S
    late = Counter(name for name, due_s, ran_s in cluster.jobs if due_s <= began_s < ran_s)
    assert max(late.values()) == 1, "those that were missed in between are skipped"


@settings(max_examples=examples(100))
@given(SEEDS, NSQDS, st.integers(1, 3), st.floats(0, 250))
def test_lost_tokens_are_published_again(seed: int, nsqds: int, count: int, after_s: float) -> None:
    cluster = Cluster(seed, nsqds)
    for _ in range(count):
        cluster.start(SCHEDULES)
    from_s = cluster.now_s + FIRST_S
    cluster.run(FIRST_S + after_s)
    cluster.lose_tokens()  # somebody has emptied the topic
    lost_s = cluster.now_s
    cluster.run(UNTIL_MISSED_S + 400)
    assert_once(cluster)
    assert_all_ran(cluster, ["rare"], from_s, cluster.now_s - UNTIL_MISSED_S)
    assert_all_ran(cluster, STEADY, lost_s + UNTIL_MISSED_S + 60, cluster.now_s - MOST_LATE_S)


@settings(max_examples=examples(100))
@given(SEEDS, st.integers(1, 3), st.floats(0, 250), st.floats(1, 150))
def test_an_nsqd_that_is_away_delays_its_occurrences(
    seed: int, count: int, after_s: float, away_s: float
) -> None:
    cluster = Cluster(seed, 2)
    for _ in range(count):
        cluster.start(SCHEDULES)
    from_s = cluster.now_s + FIRST_S
    cluster.run(FIRST_S + after_s)
    cluster.nsqd_down(cluster.nsqds[0])
    cluster.run(away_s)
    cluster.nsqd_up(cluster.nsqds[0])
    cluster.run(UNTIL_MISSED_S + 200)
    assert_once(cluster)
    assert_all_ran(cluster, ["rare"], from_s, cluster.now_s - UNTIL_MISSED_S)
    assert_all_ran(cluster, SLOW, cluster.now_s - 60, cluster.now_s - MOST_LATE_S)


@settings(max_examples=examples(30))  # each runs for more than an hour
@given(SEEDS, NSQDS, st.floats(0.1, 40))
def test_a_changed_schedule_and_a_new_one_run_during_and_after_a_rolling_deploy(
    seed: int, nsqds: int, step_s: float
) -> None:
    cluster = Cluster(seed, nsqds)
    newer = {"minutes": SCHEDULES["twenties"], "new": SCHEDULES["twenties"], "ones": SCHEDULES["ones"]}
    old = [cluster.start(SCHEDULES) for _ in range(3)]
    cluster.run(30)
    for scheduler in old:
        cluster.start(newer)
        cluster.run(step_s)
        cluster.end(scheduler)
        cluster.run(step_s)
    over_s = cluster.now_s
    cluster.run(FOREIGN_S + 400)
    assert_once(cluster)
    ran = times_run(cluster)
    for due_s in due_between("twenties", over_s + UNTIL_MISSED_S, cluster.now_s - MOST_LATE_S):
        assert ran["minutes", due_s] == ran["new", due_s] == 1
        assert ran["twenties", due_s] == 0
    waiting = {stored.token.schedule for nsqd in cluster.nsqds for stored in nsqd.channel}
    assert waiting <= set(newer), "what was removed is dropped"


@settings(max_examples=examples(100))
@given(SEEDS, st.floats(0.1, 30))
def test_a_new_schedule_is_in_time_while_old_processes_are_there(seed: int, before_s: float) -> None:
    cluster = Cluster(seed)
    newer = {"twenties": SCHEDULES["twenties"]}
    cluster.start({})
    cluster.run(before_s)
    cluster.start(newer)
    from_s = cluster.now_s + FIRST_S
    cluster.run(300)
    assert_once(cluster)
    assert_all_ran(cluster, newer, from_s, cluster.now_s - LONGEST_FOREIGN_WAIT_S)
    late = [ran_s - due_s for _, due_s, ran_s in cluster.jobs]
    assert sorted(late)[len(late) // 2] < MOST_LATE_S
