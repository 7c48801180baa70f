"""When the disk counts as slow, and when as quick again."""

from __future__ import annotations

import time

import pytest

from nsqd_py.runtime.disk_pace import FIRST_HOLD_NS, SLOW_IN_THREAD_NS, SLOW_NS, CallTimer, DiskPace, ProcessorWaits
from tests.unit.fakes import MS, SECOND, World


class Bench:
    """A disk whose calls take what the test says."""

    def __init__(self) -> None:
        self.world = World()
        self.pace = DiskPace(self.world.alarms, self.world.clock, self.world.log)


@pytest.fixture
def waited_ns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the event loop waited for a processor: nothing, unless the test puts something in."""
    waits: list[int] = []
    monkeypatch.setattr(ProcessorWaits, "since_last", lambda _: waits.pop() if waits else 0)
    return waits


@pytest.fixture
def bench(waited_ns: list[int]) -> Bench:
    return Bench()


def test_one_slow_call_is_enough(bench: Bench) -> None:
    bench.pace.note(SLOW_NS - 1)
    assert not bench.pace.is_slow
    bench.pace.note(SLOW_NS)
    assert bench.pace.is_slow


def test_calls_that_are_not_slow_alone_add_up(bench: Bench) -> None:
    for _ in range(100):  # a tenth of the time
        bench.pace.note(20 * MS)
        bench.world.pass_time(180 * MS)
    assert not bench.pace.is_slow
    for _ in range(10):  # half of it
        bench.pace.note(20 * MS)
        bench.world.pass_time(20 * MS)
    assert bench.pace.is_slow


def test_waiting_for_a_processor_is_not_the_disks_fault(bench: Bench, waited_ns: list[int]) -> None:
    waited_ns.append(400 * MS)
    bench.pace.note(420 * MS)
    assert not bench.pace.is_slow
    waited_ns.append(100 * MS)
    bench.pace.note(420 * MS)
    assert bench.pace.is_slow


def test_it_is_quick_again_after_a_while_without_a_slow_call(bench: Bench) -> None:
    bench.pace.note(SLOW_NS)
    bench.world.pass_time(FIRST_HOLD_NS - 1)
    assert bench.pace.is_slow
    bench.pace.end(object(), SLOW_IN_THREAD_NS)  # a thread saw another one
    bench.world.pass_time(FIRST_HOLD_NS - 1)
    bench.pace.end(object(), SLOW_IN_THREAD_NS - 1)
    assert bench.pace.is_slow
    bench.world.pass_time(1)
    assert not bench.pace.is_slow


def test_it_takes_longer_after_a_relapse(bench: Bench) -> None:
    for hold_ns in (10, 20, 40, 80):
        bench.pace.note(SLOW_NS)
        bench.world.pass_time(hold_ns * SECOND - 1)
        assert bench.pace.is_slow
        bench.world.pass_time(1)
        assert not bench.pace.is_slow
    bench.world.pass_time(3600 * SECOND)
    bench.pace.note(SLOW_NS)
    bench.world.pass_time(FIRST_HOLD_NS)
    assert not bench.pace.is_slow


def test_work_that_can_wait_waits_no_longer_after_a_relapse(bench: Bench) -> None:
    """Otherwise a disk that is slow now and then would fill up with files that nobody needs."""
    for _ in range(10):
        bench.pace.note(SLOW_NS)
        assert bench.pace.was_slow_lately
        bench.world.pass_time(FIRST_HOLD_NS)
        assert not bench.pace.was_slow_lately
        assert bench.pace.attempt(lambda: None, can_wait=True)
    assert bench.pace.is_slow
    assert not bench.pace.attempt(lambda: None)
    call = object()
    bench.pace.begin(call)
    bench.world.pass_time(SLOW_IN_THREAD_NS + 1)
    assert bench.pace.was_slow_lately, "a call in a thread has not returned"
    bench.pace.end(call, SLOW_IN_THREAD_NS)
    bench.world.pass_time(FIRST_HOLD_NS)
    bench.pace.stall("orders")
    assert bench.pace.was_slow_lately


def test_a_call_that_does_not_come_back_keeps_it_slow(bench: Bench) -> None:
    bench.pace.note(SLOW_NS)
    call = object()
    bench.pace.begin(call)
    bench.world.pass_time(3600 * SECOND)
    assert bench.pace.is_slow
    bench.pace.end(call, 3600 * SECOND)
    bench.world.pass_time(FIRST_HOLD_NS)
    assert not bench.pace.is_slow


def test_syncs_that_take_long(bench: Bench) -> None:
    bench.pace.stall("orders")
    bench.pace.stall("clicks")
    bench.pace.end_stall("orders")
    assert bench.pace.is_slow
    bench.pace.note(SLOW_NS)
    bench.pace.end_stall("clicks")
    assert bench.pace.is_slow, "a call was slow, too"
    bench.pace.stall("orders")
    bench.world.pass_time(FIRST_HOLD_NS)
    assert bench.pace.is_slow
    bench.pace.end_stall("orders")
    assert not bench.pace.is_slow


def test_nothing_is_attempted_on_a_slow_disk(bench: Bench) -> None:
    done: list[str] = []
    assert bench.pace.attempt(lambda: done.append("quick"))
    bench.pace.stall("orders")
    assert not bench.pace.attempt(lambda: done.append("slow"))
    assert done == ["quick"]


def test_a_timed_call_that_fails_counts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0, SLOW_NS))
    monkeypatch.setattr("nsqd_py.runtime.disk_pace.monotonic_ns", lambda: next(times))

    def fail() -> None:
        raise OSError("it took its time")

    with pytest.raises(OSError, match="took its time"):
        bench.pace.timed(fail)
    assert bench.pace.is_slow


def test_a_call_in_a_thread_is_measured() -> None:
    timer = CallTimer()
    with timer:
        time.sleep(0.02)
    with timer:
        pass
    assert timer.slowest_ns >= 15 * MS


def test_waiting_for_a_processor_is_counted_once() -> None:
    waits = ProcessorWaits()
    waits.since_last()
    assert 0 <= waits.since_last() < 10 * SECOND
