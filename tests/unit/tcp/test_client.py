"""Clients that cause very many errors are served more slowly, until they stop."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from nsqd_py.net.loop_iteration import SLOW_PART, Backlog
from nsqd_py.tcp.client import ERRORS_AT_ONCE, ERRORS_PER_S, ErrorCharge


def test_as_many_errors_as_a_consumer_may_cause_at_once_are_free() -> None:
    charge = ErrorCharge(0.0)
    assert not any(charge.add(0.0) for _ in range(ERRORS_AT_ONCE))
    assert charge.add(0.0)


def test_errors_are_forgotten() -> None:
    charge = ErrorCharge(0.0)
    for _ in range(10 * ERRORS_AT_ONCE):
        charge.add(0.0)
    assert charge.is_over(1.0)
    assert charge.is_over(ERRORS_AT_ONCE / ERRORS_PER_S - 1.0)
    assert not charge.is_over(ERRORS_AT_ONCE / ERRORS_PER_S + 1.0)


class Loop:
    """Timers that ring when the test says so."""

    iteration = 0

    def __init__(self) -> None:
        self.started: list[tuple[float, Callable[[], None]]] = []

    def timer(self, after_s: float) -> Timer:
        return Timer(self, after_s)

    def ring(self, first: int) -> None:
        """Let this timer ring and those that are started by then: a busy machine needs more of them for the work."""
        while first < len(self.started):
            self.started[first][1]()
            first += 1


class Timer:
    def __init__(self, loop: Loop, after_s: float) -> None:
        self.loop, self.after_s = loop, after_s

    def start(self, callback: Callable[[], None]) -> None:
        self.loop.started.append((self.after_s, callback))

    def stop(self) -> None: ...

    def close(self) -> None: ...


class Job:
    is_light = False

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def work(self) -> bool:
        self.steps -= 1
        return self.steps > 0


def test_slow_ones_wait_for_long_and_others_do_not() -> None:
    loop = Loop()
    backlog = Backlog(loop)
    slow, quick = Job(100_000), Job(3)
    backlog.add_slow(slow)
    backlog.add(quick)
    waits = dict(loop.started)
    assert sorted(waits) == [0.0, max(waits)] and max(waits) > 0.005
    waits[0.0]()
    assert quick.steps == 0 and slow.steps == 100_000
    waits[max(waits)]()
    assert 0 < slow.steps < 100_000
    # It worked for at least half a millisecond, and rests for 19 times as long.
    assert loop.started[-1][0] >= 0.0005 * (1 / SLOW_PART - 1)


def test_one_that_adds_itself_again_while_it_works_rests_as_long() -> None:
    """As a connection does: it falls behind again with the rest of its input."""
    loop = Loop()
    backlog = Backlog(loop)

    class Connection(Job):
        def work(self) -> bool:
            until_s = time.perf_counter() + 0.002
            while time.perf_counter() < until_s:
                pass
            backlog.add_slow(self)
            return super().work()

    backlog.add_slow(Connection(100_000))
    loop.started[0][1]()
    assert len(loop.started) == 2
    assert loop.started[1][0] >= 0.002 * (1 / SLOW_PART - 1)


@pytest.mark.parametrize("add", [Backlog.add, Backlog.add_slow])
def test_a_bug_in_one_does_not_end_the_work_of_others(add: Callable[..., None]) -> None:
    loop = Loop()
    backlog = Backlog(loop)
    broken, other = Job(1), Job(2)
    broken.work = {}.__getitem__  # type: ignore[method-assign, assignment]
    add(backlog, broken)
    add(backlog, other)
    with pytest.raises(TypeError):
        loop.started[0][1]()
    assert backlog.has_time()
    loop.ring(1)
    assert other.steps == 0
    timers = len(loop.started)
    add(backlog, Job(1))
    assert len(loop.started) == timers + 1


def test_one_that_is_forgiven_is_in_one_queue_only() -> None:
    loop = Loop()
    backlog = Backlog(loop)
    job = Job(2)
    backlog.add(job)
    backlog.add_slow(job)
    loop.started[0][1]()
    assert job.steps == 2
    backlog.add(job)
    loop.started[1][1]()
    assert job.steps == 2
    loop.ring(2)
    assert job.steps == 0
