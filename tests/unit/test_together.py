"""tests/support/together.py: nothing of it returns before what it waits for."""

from __future__ import annotations

import threading
import time

import gevent
import gevent.event
import pytest

from tests.support.together import join_thread, run_in_greenlets, run_in_threads, wait_for_event

SOON_S = 0.05


def test_greenlets_run_although_the_loop_has_not_looked_at_the_clock_for_longer_than_the_deadline() -> None:
    gevent.sleep(0.001)
    time.sleep(1.1)

    def call() -> int:
        gevent.sleep(0.001)
        return 7

    assert run_in_greenlets([call] * 3, deadline_s=1.0) == [7, 7, 7]


def test_a_greenlet_that_does_not_end_is_said_and_ended() -> None:
    never, ended = gevent.event.Event(), []

    def call() -> None:
        try:
            never.wait()
        finally:
            ended.append(True)

    with pytest.raises(AssertionError, match=r"waited 0.05 s for 2 calls, 1 still run: \[<Greenlet"):
        run_in_greenlets([call, lambda: None], deadline_s=SOON_S)
    gevent.sleep(0)
    assert ended == [True]


@pytest.mark.parametrize("run", [run_in_greenlets, run_in_threads])
def test_an_error_is_raised(run: type[object]) -> None:
    with pytest.raises(ZeroDivisionError):
        run([lambda: 1 // 0, lambda: 1])  # type: ignore[call-arg]


def test_a_thread_that_does_not_end_is_said() -> None:
    may_end = threading.Event()
    with pytest.raises(AssertionError, match="waited 0.05 s for 2 calls, 1 still run"):
        run_in_threads([may_end.wait, lambda: True], deadline_s=SOON_S)
    thread = threading.Thread(target=may_end.wait, name="a thread")
    thread.start()
    with pytest.raises(AssertionError, match="waited 0.05 s for the end of a thread"):
        join_thread(thread, SOON_S)
    may_end.set()
    join_thread(thread)
    assert run_in_threads([may_end.wait, lambda: True]) == [True, True]


def test_an_event_that_is_not_set_is_said() -> None:
    with pytest.raises(AssertionError, match="waited 0.05 s for the answer"):
        wait_for_event(threading.Event(), "the answer", SOON_S)
