"""Which host gets the next message, and the status lines of nsq-to-http and nsq-to-nsq."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsq_tools import hosts as host_module
from nsqd_py.runtime.logs.daemon_log import Log
from tests.support.examples import examples

NAMES = ("a", "b", "c")


def hosts_of(mode: str, *names: str, total: int = 10**6) -> host_module.HostBalancer:
    return host_module.HostBalancer(mode, names or NAMES, total, Random(5))


def picks(hosts: host_module.HostBalancer, count: int, now_s: float = 0.0) -> list[str | None]:
    return [hosts.take(now_s) for _ in range(count)]


def fail(hosts: host_module.HostBalancer, *names: str, now_s: float = 0.0) -> None:
    for name in names:
        hosts.give_back(name, is_good=False, took_s=1, now_s=now_s, count=0)


def test_each_in_its_turn_whatever_fails() -> None:
    hosts = hosts_of(host_module.ROUND_ROBIN)
    fail(hosts, "b")
    assert picks(hosts, 7) == ["a", "b", "c", "a", "b", "c", "a"]


@pytest.mark.parametrize("mode", host_module.MODES)
def test_a_host_that_was_tried_is_left_out(mode: str) -> None:
    hosts = hosts_of(mode)
    assert hosts.take(0, {"a", "c"}) == "b"
    assert hosts.take(0, set(NAMES)) is None


@pytest.mark.parametrize("mode", [host_module.HOSTPOOL, host_module.EPSILON_GREEDY])
def test_a_host_that_failed_gets_one_message_when_its_time_has_come(mode: str) -> None:
    hosts = hosts_of(mode)
    fail(hosts, "b", now_s=100)
    assert "b" not in picks(hosts, 10, now_s=100 + host_module.FIRST_RETRY_S)
    assert picks(hosts, 100, now_s=100.1 + host_module.FIRST_RETRY_S).count("b") == 1


def test_a_host_is_tried_less_and_less_often_while_it_fails() -> None:
    hosts = hosts_of(host_module.HOSTPOOL, "a", "b")
    fail(hosts, "b")
    tried_s = []
    for now_s in range(10_000):
        if hosts.take(now_s) == "b":
            tried_s.append(now_s)
            fail(hosts, "b", now_s=now_s)
    waits = [later - earlier for earlier, later in zip([0, *tried_s], tried_s, strict=False)]
    assert waits[:6] == pytest.approx([30, 60, 120, 240, 480, host_module.LONGEST_RETRY_S], abs=2)
    assert max(waits) <= host_module.LONGEST_RETRY_S + 2


def test_when_all_have_failed_all_are_used_again() -> None:
    hosts = hosts_of(host_module.HOSTPOOL)
    fail(hosts, *NAMES)
    assert set(picks(hosts, 3)) == set(NAMES)


@pytest.mark.parametrize("fast_s", [0.0002, 0.05])
def test_messages_go_to_hosts_in_proportion_to_their_speed(fast_s: float) -> None:
    took_s = {"fast": fast_s, "slow": 4 * fast_s}
    hosts = hosts_of(host_module.EPSILON_GREEDY, *took_s)
    chosen: Counter[str] = Counter()
    for now_s in range(3000):
        name = hosts.take(now_s / 100)
        assert name
        chosen[name] += 1
        hosts.give_back(name, is_good=True, took_s=took_s[name], now_s=now_s / 100)
    assert chosen["fast"] / chosen["slow"] == pytest.approx(4, rel=0.25)


# --- shares


def test_a_host_that_hangs_keeps_its_share_and_no_more() -> None:
    hosts = hosts_of(host_module.ROUND_ROBIN, "good", "hangs", total=10)
    given: Counter[str | None] = Counter()
    for now_s in range(1000):
        name = hosts.take(now_s)
        given[name] += 1
        if name == "good":
            hosts.give_back("good", is_good=True, took_s=0.1, now_s=now_s)
    assert given == {"hangs": 5, "good": 995}


def test_the_share_of_a_dead_host_goes_to_the_living_and_not_to_one_that_hangs() -> None:
    hosts = hosts_of(host_module.HOSTPOOL, "dead", "good", "hangs", total=10)
    assert hosts.take(0) == "dead"
    hosts.give_back("dead", is_good=False, took_s=1, now_s=0)
    assert Counter(picks(hosts, 10, 1)) == {"good": 5, "hangs": 5}
    for _ in range(5):
        hosts.give_back("good", is_good=True, took_s=1, now_s=2)
    assert picks(hosts, 5, 3) == ["good"] * 5


@settings(max_examples=examples(50))
@given(st.sampled_from(host_module.MODES), st.integers(1, 5), st.integers(1, 12), st.data())
def test_there_is_always_a_host(mode: str, host_count: int, total: int, data: st.DataObject) -> None:
    """Whatever fails: while fewer than `total` messages are being sent, a message gets a host."""
    names = [f"host{number}" for number in range(host_count)]
    hosts = hosts_of(mode, *names, total=total)
    sending: list[str] = []
    now_s = 0.0
    for _ in range(data.draw(st.integers(1, 40))):
        now_s += data.draw(st.sampled_from((0.0, 1.0, 31.0, 1000.0)))
        if len(sending) < total and data.draw(st.booleans()):
            name = hosts.take(now_s)
            assert name in names
            sending.append(name)
        elif sending:
            name = sending.pop(data.draw(st.integers(0, len(sending) - 1)))
            hosts.give_back(name, is_good=data.draw(st.booleans()), took_s=0.1, now_s=now_s)


# --- status lines


def lines_of(every: int, hosts: tuple[str, ...], count: int) -> list[str]:
    """Return the log of `count` messages to each host."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    timings = host_module.Timings(hosts, every, Log("", descriptor=write_end))
    for _ in range(count):
        for host in hosts:
            timings.add(0.001, host, host_module.AGGREGATE)
    os.close(write_end)
    lines = os.read(read_end, 65536).decode().splitlines()
    os.close(read_end)
    return lines


def test_the_line_is_that_of_gos_tools() -> None:
    took_s = [number / 1000 for number in range(1, 101)]
    assert (
        host_module.status_line(list(reversed(took_s)))
        == "finished 100 - 99th: 100.00ms - 95th: 97.00ms - avg: 50.50ms"
    )


def test_a_line_for_each_host_and_one_for_all() -> None:
    starts = [line.partition("INFO: ")[2].partition(" - ")[0] for line in lines_of(100, ("a", "b"), 100)]
    all_hosts = "[aggregate]: finished 100"
    assert starts == [all_hosts, "[a]: finished 100", "[b]: finished 100", all_hosts]
    assert lines_of(0, ("a", "b"), 100) == []
