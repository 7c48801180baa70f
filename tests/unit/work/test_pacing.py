"""When calls may begin, when they are over their limit, and when a batch is complete."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from nsqd_py.work.batches import Collector
from nsqd_py.work.pacing import Pace, TimeLimits
from nsqd_py.work.testing import Clock
from tests.support.nsqd_process import wait_until


def test_calls_begin_evenly() -> None:
    clock = Clock(100)
    pace = Pace(4, clock)
    assert [pace.reserve() for _ in range(3)] == [0, 0.25, 0.5]
    clock.advance(0.3)
    assert pace.reserve() == pytest.approx(0.45)
    clock.advance(60)  # no calls are saved up
    assert [pace.reserve() for _ in range(2)] == [0, 0.25]


def test_an_end_lets_no_call_begin() -> None:
    pace = Pace(0.01)
    assert pace.wait()
    waits = []
    thread = threading.Thread(target=lambda: waits.append(pace.wait()))
    thread.start()
    pace.end()
    thread.join(40)
    assert waits == [False]
    assert not pace.wait()
    assert not asyncio.run(pace.wait_async())


def test_a_coroutine_waits_for_its_turn() -> None:
    pace = Pace(1000)
    assert asyncio.run(pace.wait_async())
    assert asyncio.run(pace.wait_async())


def test_a_call_is_ended_by_its_function_or_by_its_limit() -> None:
    clock = Clock(100)
    limits = TimeLimits(clock)
    over: list[str] = []
    short = limits.begin(5, lambda: over.append("short"))
    long = limits.begin(10, lambda: over.append("long"))
    clock.advance(4)
    assert limits.expire(clock()) == 0
    clock.advance(2)
    assert limits.expire(clock()) == 1
    assert over == ["short"]
    assert not limits.end(short)
    assert limits.end(long)
    clock.advance(60)
    assert limits.expire(clock()) == 0
    assert over == ["short"]


def test_a_late_function_returns_after_its_message_is_answered() -> None:
    limits = TimeLimits()
    may_answer = threading.Event()
    events: list[str] = []

    def answer() -> None:
        may_answer.wait(40)
        events.append("answered")

    call = limits.begin(0, answer)
    limits.start()
    wait_until(lambda: call not in limits._running, what="the limit to be over")

    def end() -> None:
        limits.end(call)
        events.append("returned")

    thread = threading.Thread(target=end)
    thread.start()
    may_answer.set()
    thread.join(40)
    limits.close()
    assert events == ["answered", "returned"]


def test_a_thread_watches_limits_that_begin_at_any_time() -> None:
    limits = TimeLimits()
    limits.start()
    limits.begin(1000, lambda: None)
    over = threading.Event()
    limits.begin(0.01, over.set)
    assert over.wait(40)
    limits.close()


# ---- batches


class Arrived:
    """A batch of messages as the consumer hands them out."""

    def __init__(self, *names: str, is_live: bool = True) -> None:
        self._messages = [Named(name, is_live) for name in names]

    def messages(self) -> list[Any]:
        return self._messages


class Named:
    def __init__(self, name: str, is_live: bool) -> None:
        self.name = name
        self.is_live = is_live
        self.is_settled = False

    def settle(self) -> None:
        self.is_settled = True


def collector(clock: Clock, most: int = 3, within_s: float = 10) -> Any:
    return Collector(most, within_s, clock)


def names(messages: list[Any]) -> list[str]:
    return [message.name for message in messages]


def test_a_batch_is_complete_with_enough_messages() -> None:
    clock = Clock(100)
    waiting = collector(clock)
    waiting.put(Arrived("a", "b"))
    assert waiting.wait_s(clock()) == 10
    clock.advance(4)
    waiting.put(Arrived("c", "d"))
    assert waiting.wait_s(clock()) == 0
    assert names(waiting.take()) == ["a", "b", "c"]
    assert waiting.wait_s(clock()) == 10


def test_a_batch_is_complete_when_its_first_message_has_waited() -> None:
    clock = Clock(100)
    waiting = collector(clock)
    waiting.put(Arrived("a"))
    clock.advance(9)
    waiting.put(Arrived("b"))
    assert waiting.wait_s(clock()) == 1
    clock.advance(1)
    assert names(waiting.take()) == ["a", "b"]


def test_a_stop_waits_for_no_more_messages() -> None:
    clock = Clock(100)
    waiting = collector(clock)
    waiting.put(Arrived("a"))
    waiting.hurry()
    assert names(waiting.take()) == ["a"]
    waiting.put(Arrived("b"))
    assert names(waiting.take()) == ["b"]
    waiting.close()
    assert waiting.take() is None


def test_messages_that_timed_out_are_left_out() -> None:
    waiting = collector(Clock(), most=2)
    waiting.put(Arrived("late", is_live=False))
    waiting.put(Arrived("a"))
    assert names(waiting.take()) == ["a"]


def test_threads_take_batches_and_settle_them_until_one_fails() -> None:
    waiting: Any = Collector(2, 1000)
    handled: list[str] = []

    def handle(messages: list[Any]) -> None:
        handled.extend(names(messages))
        if "end" in handled:
            raise SystemExit

    waiting.start(1, handle)
    arrived = Arrived("a", "b", "c", "end")
    waiting.put(arrived)
    wait_until(lambda: waiting.failure is not None, what="the failure")
    assert handled == ["a", "b", "c", "end"]
    assert [message.is_settled for message in arrived.messages()] == [True, True, False, False]
    assert isinstance(waiting.failure, SystemExit)


def test_late_calls_are_counted_until_they_end() -> None:
    now_s = 0.0
    limits = TimeLimits(lambda: now_s)
    first, other = object(), object()
    hangs = limits.begin(5, lambda: None, first)
    limits.begin(5, lambda: None, other)
    limits.begin(50, lambda: None, first)
    assert limits.count_late(first) == 0
    limits.expire(5)
    assert (limits.count_late(first), limits.count_late(other)) == (1, 1)
    assert not limits.end(hangs)
    assert (limits.count_late(first), limits.count_late(other)) == (0, 1)
