"""When the disk counts as slow, and when as fast again."""

from __future__ import annotations

import pytest

from nsqd_py.diskqueue import syncing
from nsqd_py.diskqueue.syncing import CallTimer
from nsqd_py.runtime.disk_speed import SLOW_FOR_NS, SLOW_NS
from tests.unit.fakes import MS, SECOND, World


@pytest.fixture
def world() -> World:
    """`world.disk_speed`: a disk whose calls take what the test says."""
    return World()


def test_one_slow_call_is_enough(world: World) -> None:
    world.disk_speed.note(SLOW_NS - 1)
    assert not world.disk_speed.is_slow
    world.disk_speed.note(SLOW_NS)
    assert world.disk_speed.is_slow


def test_it_is_fast_again_after_a_while_without_a_slow_call(world: World) -> None:
    world.disk_speed.note(SLOW_NS)
    world.pass_time(SLOW_FOR_NS - 1)
    assert world.disk_speed.is_slow
    world.disk_speed.end(object(), SLOW_NS)  # a thread saw another one
    world.pass_time(SLOW_FOR_NS - 1)
    world.disk_speed.end(object(), SLOW_NS - 1)
    assert world.disk_speed.is_slow
    world.pass_time(1)
    assert not world.disk_speed.is_slow


def test_since_when_it_is_slow(world: World) -> None:
    assert world.disk_speed.slow_since_ns == 0
    since_ns = world.clock()
    world.disk_speed.note(SLOW_NS)
    world.pass_time(SLOW_FOR_NS - 1)
    world.disk_speed.note(SLOW_NS)
    world.pass_time(SLOW_FOR_NS - 1)
    assert world.disk_speed.slow_since_ns == since_ns
    world.pass_time(1)
    assert world.disk_speed.slow_since_ns == 0


def test_a_call_that_does_not_come_back_keeps_it_slow(world: World) -> None:
    world.disk_speed.note(SLOW_NS)
    call = object()
    world.disk_speed.begin(call)
    world.pass_time(3600 * SECOND)
    assert world.disk_speed.is_slow
    world.disk_speed.end(call, 3600 * SECOND)
    world.pass_time(SLOW_FOR_NS)
    assert not world.disk_speed.is_slow


def test_syncs_that_take_long(world: World) -> None:
    world.disk_speed.stall("orders")
    world.disk_speed.stall("clicks")
    world.disk_speed.end_stall("orders")
    assert world.disk_speed.is_slow
    world.disk_speed.note(SLOW_NS)
    world.disk_speed.end_stall("clicks")
    assert world.disk_speed.is_slow, "a call was slow, too"
    world.disk_speed.stall("orders")
    world.pass_time(SLOW_FOR_NS)
    assert world.disk_speed.is_slow
    assert not world.disk_speed.attempt(pytest.fail)
    world.disk_speed.end_stall("orders")
    assert world.disk_speed.attempt(lambda: None)


def test_a_call_in_a_thread_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    times_ns = iter((0, 20 * MS, 30 * MS, 31 * MS))
    monkeypatch.setattr(syncing, "monotonic_ns", lambda: next(times_ns))
    timer = CallTimer()
    for _ in range(2):
        with timer:
            pass
    assert timer.slowest_ns == 20 * MS
