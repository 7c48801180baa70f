"""When the disk counts as slow, and when as fast again."""

from __future__ import annotations

import time
from time import monotonic_ns

import pytest

from nsqd_py.diskqueue.syncing import CallTimer
from nsqd_py.runtime.disk_speed import SLOW_FOR_NS, SLOW_NS, DiskSpeed
from tests.unit.fakes import MS, SECOND, World


class Bench:
    """A disk whose calls take what the test says."""

    def __init__(self) -> None:
        self.world = World()
        self.disk_speed = DiskSpeed(self.world.alarms, self.world.clock, monotonic_ns, self.world.log)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_one_slow_call_is_enough(bench: Bench) -> None:
    bench.disk_speed.note(SLOW_NS - 1)
    assert not bench.disk_speed.is_slow
    bench.disk_speed.note(SLOW_NS)
    assert bench.disk_speed.is_slow


def test_it_is_fast_again_after_a_while_without_a_slow_call(bench: Bench) -> None:
    bench.disk_speed.note(SLOW_NS)
    bench.world.pass_time(SLOW_FOR_NS - 1)
    assert bench.disk_speed.is_slow
    bench.disk_speed.end(object(), SLOW_NS)  # a thread saw another one
    bench.world.pass_time(SLOW_FOR_NS - 1)
    bench.disk_speed.end(object(), SLOW_NS - 1)
    assert bench.disk_speed.is_slow
    bench.world.pass_time(1)
    assert not bench.disk_speed.is_slow


def test_since_when_it_is_slow(bench: Bench) -> None:
    assert bench.disk_speed.slow_since_ns == 0
    since_ns = bench.world.clock()
    bench.disk_speed.note(SLOW_NS)
    bench.world.pass_time(SLOW_FOR_NS - 1)
    bench.disk_speed.note(SLOW_NS)
    bench.world.pass_time(SLOW_FOR_NS - 1)
    assert bench.disk_speed.slow_since_ns == since_ns
    bench.world.pass_time(1)
    assert bench.disk_speed.slow_since_ns == 0


def test_a_call_that_does_not_come_back_keeps_it_slow(bench: Bench) -> None:
    bench.disk_speed.note(SLOW_NS)
    call = object()
    bench.disk_speed.begin(call)
    bench.world.pass_time(3600 * SECOND)
    assert bench.disk_speed.is_slow
    bench.disk_speed.end(call, 3600 * SECOND)
    bench.world.pass_time(SLOW_FOR_NS)
    assert not bench.disk_speed.is_slow


def test_syncs_that_take_long(bench: Bench) -> None:
    bench.disk_speed.stall("orders")
    bench.disk_speed.stall("clicks")
    bench.disk_speed.end_stall("orders")
    assert bench.disk_speed.is_slow
    bench.disk_speed.note(SLOW_NS)
    bench.disk_speed.end_stall("clicks")
    assert bench.disk_speed.is_slow, "a call was slow, too"
    bench.disk_speed.stall("orders")
    bench.world.pass_time(SLOW_FOR_NS)
    assert bench.disk_speed.is_slow
    assert not bench.disk_speed.attempt(pytest.fail)
    bench.disk_speed.end_stall("orders")
    assert bench.disk_speed.attempt(lambda: None)


def test_a_call_in_a_thread_is_measured() -> None:
    timer = CallTimer()
    with timer:
        time.sleep(0.02)
    with timer:
        pass
    assert timer.slowest_ns >= 15 * MS
