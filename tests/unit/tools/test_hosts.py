"""Which host gets the next message."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsq_tools.hosts import (
    BUCKET_S,
    EPSILON_GREEDY,
    FIRST_EPSILON,
    FIRST_RETRY_S,
    HOSTPOOL,
    LEAST_EPSILON,
    LONGEST_RETRY_S,
    MEMORY_S,
    ROUND_ROBIN,
    EpsilonGreedy,
    HostChooser,
    HostPool,
    HostShares,
    RecentDurations,
    RoundRobin,
    make_hosts,
)
from tests.support.examples import examples

MODES = (ROUND_ROBIN, HOSTPOOL, EPSILON_GREEDY)
NAMES = ("a", "b", "c")


def picks(hosts: HostChooser, count: int, now_s: float = 0.0) -> list[str | None]:
    return [hosts.pick(now_s) for _ in range(count)]


# ---- round-robin


def test_each_in_its_turn_whatever_fails() -> None:
    hosts = RoundRobin(NAMES)
    hosts.mark("b", is_good=False, took_s=1, now_s=0)
    assert picks(hosts, 7) == ["a", "b", "c", "a", "b", "c", "a"]


def test_who_is_left_out_is_passed_over() -> None:
    hosts = RoundRobin(NAMES)
    assert hosts.pick(0, {"a"}) == "b"
    assert hosts.pick(0) == "c"
    assert hosts.pick(0, set(NAMES)) is None


# ---- hostpool


def test_a_host_that_failed_gets_one_message_when_its_time_has_come() -> None:
    hosts = HostPool(NAMES)
    hosts.mark("b", is_good=False, took_s=1, now_s=100)
    assert "b" not in picks(hosts, 10, now_s=100 + FIRST_RETRY_S)
    assert picks(hosts, 10, now_s=100.1 + FIRST_RETRY_S).count("b") == 1


def test_a_host_is_tried_less_and_less_often_while_it_fails() -> None:
    hosts = HostPool(("a", "b"))
    hosts.mark("b", is_good=False, took_s=1, now_s=0)
    tried_s = []
    for now_s in range(10_000):
        if hosts.pick(now_s) == "b":
            tried_s.append(now_s)
            hosts.mark("b", is_good=False, took_s=1, now_s=now_s)
    waits = [later - earlier for earlier, later in zip([0, *tried_s], tried_s, strict=False)]
    # A second more each time: it has to be later than the time that was set.
    assert waits[:6] == pytest.approx([30, 60, 120, 240, 480, LONGEST_RETRY_S], abs=2)
    assert max(waits) <= LONGEST_RETRY_S + 2


def test_a_host_that_works_again_gets_its_turn_again() -> None:
    hosts = HostPool(("a", "b"))
    hosts.mark("b", is_good=False, took_s=1, now_s=0)
    hosts.mark("b", is_good=True, took_s=1, now_s=1)
    assert Counter(picks(hosts, 10, now_s=1)) == {"a": 5, "b": 5}
    assert hosts.live_count() == 2


def test_when_all_have_failed_all_are_taken_back() -> None:
    hosts = HostPool(NAMES)
    for name in NAMES:
        hosts.mark(name, is_good=False, took_s=1, now_s=0)
    assert hosts.live_count() == 0
    assert set(picks(hosts, 3)) == set(NAMES)


def test_a_dead_host_is_nobody_else() -> None:
    hosts = HostPool(("a", "b"))
    hosts.mark("b", is_good=False, took_s=1, now_s=0)
    assert hosts.pick(1, without={"a"}) is None


# ---- epsilon-greedy


def speeds(took_s: dict[str, float], count: int = 3000) -> Counter[str | None]:
    """How often each is picked, when it takes so long."""
    hosts = EpsilonGreedy(list(took_s), random.Random(5).random)
    chosen: Counter[str | None] = Counter()
    for now_s in range(count):
        name = hosts.pick(now_s / 100)
        assert name
        chosen[name] += 1
        hosts.mark(name, is_good=True, took_s=took_s[name], now_s=now_s / 100)
    return chosen


@pytest.mark.parametrize("fast_s", [0.0002, 0.05])
def test_messages_go_to_hosts_in_proportion_to_their_speed(fast_s: float) -> None:
    chosen = speeds({"fast": fast_s, "slow": 4 * fast_s})
    assert chosen["fast"] / chosen["slow"] == pytest.approx(4, rel=0.25)


def test_a_host_that_failed_is_left_out() -> None:
    hosts = EpsilonGreedy(("a", "b"), random.Random(5).random)
    for name in ("a", "b"):
        hosts.mark(name, is_good=True, took_s=0.1, now_s=0)
    hosts.mark("b", is_good=False, took_s=0.1, now_s=0)
    assert set(picks(hosts, 100, now_s=1)) == {"a"}
    assert picks(hosts, 1000, now_s=1 + FIRST_RETRY_S).count("b") == 1


def test_exploring_becomes_rare_but_never_ends() -> None:
    asked = []

    def never() -> float:
        asked.append(0.0)
        return 0.0

    hosts = EpsilonGreedy(NAMES, never)
    picks(hosts, 100)
    assert len(asked) == 100  # each was an exploration: speed was never asked for
    assert hosts._epsilon == LEAST_EPSILON < FIRST_EPSILON


def test_an_average_counts_the_newest_most_and_forgets() -> None:
    times = RecentDurations()
    times.add(1.0, now_s=0)
    times.add(3.0, now_s=0)
    assert times.average_s(now_s=0) == 2.0
    times.add(10.0, now_s=MEMORY_S / 2)
    average_s = times.average_s(now_s=MEMORY_S / 2)
    # The first half of the weights rises to 1/2 and counts 2 s; of the second only the newest is measured.
    assert average_s is not None and 2.0 < average_s < 6.0
    later_s = times.average_s(MEMORY_S / 2 + 10 * BUCKET_S)
    assert later_s is not None and average_s < later_s < 10.0
    assert times.average_s(now_s=2 * MEMORY_S) is None


def test_the_second_half_of_the_time_counts_three_times_as_much_as_the_first() -> None:
    times = RecentDurations()
    for now_s in range(int(MEMORY_S)):
        times.add(2.0 if now_s < MEMORY_S / 2 else 10.0, now_s)
    assert times.average_s(MEMORY_S - 1) == pytest.approx((2.0 + 3 * 10.0) / 4, rel=0.02)


def test_a_host_measured_for_longer_does_not_seem_slower() -> None:
    old, new = RecentDurations(), RecentDurations()
    for now_s in range(200):
        old.add(0.5, now_s)
    new.add(0.5, 199)
    assert old.average_s(200) == pytest.approx(0.5) == new.average_s(200)


# ---- shares


def test_a_host_that_hangs_keeps_its_share_and_no_more() -> None:
    shares = HostShares(RoundRobin(("good", "hangs")), ("good", "hangs"), total=10)
    given: Counter[str | None] = Counter()
    for now_s in range(1000):
        name = shares.take(now_s)
        given[name] += 1
        if name == "good":
            shares.give_back("good", is_good=True, took_s=0.1, now_s=now_s)
    assert given == {"hangs": 5, "good": 995}


def test_where_one_is_dead_the_other_has_all_places() -> None:
    shares = HostShares(HostPool(("a", "b")), ("a", "b"), total=10)
    assert shares.take(0, {"a"}) == "b"
    shares.give_back("b", is_good=False, took_s=1, now_s=0)
    assert [shares.take(1) for _ in range(10)] == ["a"] * 10


def test_the_share_of_a_dead_host_goes_to_the_living_and_not_to_one_that_hangs() -> None:
    shares = HostShares(HostPool(("dead", "good", "hangs")), ("dead", "good", "hangs"), total=10)
    assert shares.take(0) == "dead"
    shares.give_back("dead", is_good=False, took_s=1, now_s=0)
    assert Counter(shares.take(1) for _ in range(10)) == {"good": 5, "hangs": 5}
    for _ in range(5):
        shares.give_back("good", is_good=True, took_s=1, now_s=2)
    assert [shares.take(3) for _ in range(5)] == ["good"] * 5


@settings(max_examples=examples(50))
@given(st.sampled_from(MODES), st.integers(1, 5), st.integers(1, 12), st.data())
def test_there_is_always_a_place(mode: str, host_count: int, total: int, data: st.DataObject) -> None:
    """Whatever fails: while fewer than `total` are under way, a message gets a host, and a living one if any."""
    names = [f"host{number}" for number in range(host_count)]
    shares = HostShares(make_hosts(mode, names, random.Random(1).random), names, total)
    under_way: list[str] = []
    now_s = 0.0
    for _ in range(data.draw(st.integers(1, 40))):
        now_s += data.draw(st.sampled_from((0.0, 1.0, 31.0, 1000.0)))
        if len(under_way) < total and data.draw(st.booleans()):
            name = shares.take(now_s)
            assert name in names
            under_way.append(name)
        elif under_way:
            name = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            shares.give_back(name, is_good=data.draw(st.booleans()), took_s=0.1, now_s=now_s)
