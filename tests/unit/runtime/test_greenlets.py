"""Greenlets that run one function after another."""

from __future__ import annotations

from typing import Any

import gevent
import pytest

from nsqd_py.runtime.threads import ReusedGreenlets


def test_a_greenlet_is_used_again() -> None:
    greenlets = ReusedGreenlets()
    seen: list[Any] = []
    for number in range(3):
        greenlets.spawn(lambda number: seen.append((number, gevent.getcurrent())), number)
        gevent.sleep(0)
    assert [number for number, _ in seen] == [0, 1, 2]
    assert len({greenlet for _, greenlet in seen}) == 1


def test_functions_that_wait_run_side_by_side() -> None:
    greenlets = ReusedGreenlets()
    gate = gevent.event.Event()
    ended: list[int] = []

    def wait(number: int) -> None:
        gate.wait()
        ended.append(number)

    for number in range(10):
        greenlets.spawn(wait, number)
    gevent.sleep(0)
    assert not ended
    gate.set()
    gevent.sleep(0)
    assert sorted(ended) == list(range(10))


def test_an_error_is_reported_and_the_next_function_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Any] = []
    monkeypatch.setattr(gevent.get_hub(), "handle_error", lambda _context, _kind, error, _trace: errors.append(error))
    greenlets = ReusedGreenlets()
    seen: list[int] = []
    for work in (lambda: seen.append(1), lambda: 1 // 0, lambda: seen.append(2)):
        greenlets.spawn(work)
        gevent.sleep(0)
        gevent.sleep(0)
    assert seen == [1, 2]
    assert [type(error) for error in errors] == [ZeroDivisionError]
