"""When a round of a store begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gevent
import pytest

from nsqd_py.store.uploading import timing
from nsqd_py.store.uploading.timing import RoundTimer

INTERVAL_S = 300
NOW_S = 1000
SECOND = 1_000_000_000


@dataclass
class Publishers:
    """Publishers that wait for the store; `next_count` of them are left when a round is stored."""

    waiting: int = 0
    next_count: int = 0

    def last_write(self) -> int:
        return 7

    def count(self) -> int:
        return self.waiting

    def stored(self, write: int) -> None:
        assert write == 7
        self.waiting = self.next_count


@dataclass
class Changes:
    """A feed, as far as a timer asks it."""

    since_ns: int = 0
    is_due: bool = False


@pytest.fixture
def publishers() -> Publishers:
    return Publishers()


@pytest.fixture
def timer(publishers: Publishers, monkeypatch: pytest.MonkeyPatch) -> RoundTimer:
    monkeypatch.setattr(timing, "monotonic", lambda: float(NOW_S))
    return RoundTimer(publishers, lambda: NOW_S * SECOND, INTERVAL_S * SECOND)


def wait_s(
    timer: RoundTimer, *, since_s: int = 0, is_due: bool = False, are_files_new: bool = False
) -> float:
    feed: Any = Changes(since_s * SECOND, is_due)
    return timer.wait_s(feed, NOW_S - 100.0, are_files_new=are_files_new)


def test_a_round_begins_an_interval_after_the_first_change(timer: RoundTimer) -> None:
    assert wait_s(timer, since_s=NOW_S) == INTERVAL_S
    assert wait_s(timer, since_s=NOW_S - 299) == 1
    assert wait_s(timer, since_s=NOW_S - 300) == 0


def test_files_wait_for_an_interval_after_the_last_round(timer: RoundTimer) -> None:
    assert wait_s(timer, are_files_new=True) == INTERVAL_S - 100
    assert wait_s(timer, is_due=True) == INTERVAL_S - 100


def test_nothing_new_needs_no_round_but_a_look_each_second(timer: RoundTimer) -> None:
    assert wait_s(timer) == 1
    assert timer.is_tick()
    assert not timer.is_tick()


def test_the_end_waits_for_no_interval(timer: RoundTimer) -> None:
    timer.hurry()
    assert wait_s(timer, since_s=NOW_S) == 0
    assert wait_s(timer, are_files_new=True) == 0
    assert wait_s(timer) == 1


def test_publishers_wait_for_no_interval(timer: RoundTimer, publishers: Publishers) -> None:
    publishers.waiting = 1
    assert wait_s(timer, since_s=NOW_S) == 0


def test_publishers_that_were_answered_together_are_gathered(
    timer: RoundTimer, publishers: Publishers
) -> None:
    publishers.waiting = 5
    timer.round_is_stored(timer.round_begins())
    publishers.waiting = 4
    assert wait_s(timer, since_s=NOW_S) == pytest.approx(0.002)
    publishers.waiting = 5
    assert wait_s(timer, since_s=NOW_S) == 0


def has_woken(timer: RoundTimer) -> bool:
    """Note a change while the timer sleeps. Return True if that ends its sleep."""
    sleeping = gevent.spawn(timer.sleep, 60)
    gevent.sleep(0)  # it sleeps
    timer.note_change()
    for _ in range(3):  # it runs if it was woken
        gevent.sleep(0)
    is_over = bool(sleeping.ready())
    sleeping.kill()
    return is_over


def test_the_first_change_after_each_round_and_each_base_wakes_it(timer: RoundTimer) -> None:
    assert has_woken(timer)
    assert not has_woken(timer)  # that round has not begun
    timer.round_begins()
    assert has_woken(timer)
