"""Messages are answered once; what is in flight is known; answers leave together."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from nsqd_py.client.message import AlreadyAnswered, MessageBatch, Requeue
from tests.support.subscription import World, message_id


@pytest.fixture
def world() -> World:
    return World()


def test_answers_leave_together(world: World) -> None:
    first, second, third = world.batch(1, 2, 3).messages()
    world.sent()
    first.finish()
    second.requeue(1.5)
    third.finish()
    assert world.ready == ["output"]  # reported once
    assert world.sent() == [
        b"FIN " + message_id(1),
        b"FIN " + message_id(3),
        b"REQ " + message_id(2) + b" 1500",
        b"RDY 0",
    ]
    assert world.sent() == []


@pytest.mark.parametrize("ids", [[1, 1], [1, 9], [2], [1, 2]])
def test_some_are_finished_all_or_none(world: World, ids: list[int]) -> None:
    batch = world.batch(1, 2, 3)
    batch.finish_some([message_id(2)])
    world.sent()
    with pytest.raises(AlreadyAnswered):
        batch.finish_some([message_id(number) for number in ids])
    assert world.sent() == []
    assert batch.open_count == 2


def test_an_id_that_is_here_twice_counts_once_when_it_is_answered(world: World) -> None:
    """It timed out, and came again before the first was read."""
    batch = world.batch(1, 1, 2)
    one, same, other = batch.messages()
    one.finish()
    assert same.is_answered
    other.finish()
    assert batch.is_answered
    assert world.subscription.in_flight == 0


def test_what_timed_out_is_in_flight_no_more_and_its_answers_still_leave(world: World) -> None:
    batch = world.batch(1, 2)
    world.now_s = 900.0
    world.subscription.tick()
    stats = world.subscription.stats()
    assert (stats.timed_out, stats.in_flight, batch.is_live) == (2, 0, False)
    world.sent()
    batch.finish()
    assert len(world.sent()) == 2
    assert world.subscription.in_flight == 0


def test_answers_to_a_lost_connection_go_nowhere(world: World) -> None:
    first, second, third = world.batch(1, 2, 3).messages()
    first.finish()
    world.sent()
    world.subscription.closed(world.window)
    assert not second.is_live
    second.finish()
    third.requeue()
    assert world.sent() == []
    stats = world.subscription.stats()
    assert (stats.received, stats.finished, stats.in_flight, stats.connections) == (3, 1, 0, {})
    assert stats.backoff.level == 0


@pytest.mark.parametrize("delay", [-5, math.nan, math.inf, 10**400, "30s"])
def test_a_delay_that_cannot_be_leaves_the_message_open(world: World, delay: Any) -> None:
    batch = world.batch(1, 2)
    message = batch.messages()[0]
    world.sent()
    for requeue in (message.requeue, batch.requeue, Requeue):
        with pytest.raises((TypeError, ValueError)):
            requeue(delay)
    assert (world.sent(), batch.open_count, world.window.in_flight) == ([], 2, 2)


# ---- several threads answer, while another one takes the output

_THREADS = 4
_MESSAGES = 2000


@pytest.fixture
def large_world() -> Iterator[World]:
    """Threads change often in it."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    world = World(max_in_flight=_MESSAGES)
    world.sent()
    yield world
    sys.setswitchinterval(interval_s)


def test_each_message_is_finished_once_by_one_of_many_threads(large_world: World) -> None:
    world = large_world
    batch = world.batch(*range(_MESSAGES))
    sent = []
    has_ended = threading.Event()

    def take_output() -> None:
        while not has_ended.is_set():
            sent.extend(world.window.take_output().splitlines())

    def finish_all() -> int:
        return sum(map(batch.finish_if_open, map(message_id, range(_MESSAGES))))

    with ThreadPoolExecutor(_THREADS + 1) as pool:
        taking = pool.submit(take_output)
        finished = sum(future.result() for future in [pool.submit(finish_all) for _ in range(_THREADS)])
        has_ended.set()
        taking.result()
    sent += world.sent()
    assert finished == _MESSAGES
    assert sorted(sent) == [b"FIN " + message_id(number) for number in range(_MESSAGES)]
    assert batch.is_answered
    assert (world.window.in_flight, world.window.finished, world.window.is_empty) == (0, _MESSAGES, True)


def test_output_that_comes_while_it_is_taken_is_announced(large_world: World) -> None:
    """Otherwise a FIN would wait until something else wakes the I/O thread."""
    batch, window = large_world.batch(*range(_MESSAGES)), large_world.window
    finishing = threading.Thread(target=list, args=[map(batch.finish_one, map(message_id, range(_MESSAGES)))])
    finishing.start()
    while finishing.is_alive():
        if window.has_output:
            window.take_output()
    assert window.has_output or window.take_output() == b""


WAYS: dict[str, Callable[[MessageBatch], None]] = {
    "all": lambda batch: batch.finish(),
    "some": lambda batch: batch.finish_some(batch.open_ids()[-1:]),
    "requeue": lambda batch: batch.requeue(0),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_a_thread_finishes_is_not_answered_again_with_its_batch(
    large_world: World, way: str
) -> None:
    world, count = large_world, 200
    for _ in range(20):
        batch = world.batch(*range(count))
        assert batch.finish_if_open(message_id(0))  # there is a set of those that are open from now on

        finishing = threading.Thread(
            target=list, args=[map(batch.finish_if_open, map(message_id, range(1, count)))]
        )
        finishing.start()
        while finishing.is_alive() and not batch.is_answered:
            with suppress(AlreadyAnswered):
                WAYS[way](batch)
        finishing.join()
        answered = [answer.split()[1] for answer in world.sent() if answer.split()[0] in (b"FIN", b"REQ")]
        assert sorted(answered) == [message_id(number) for number in range(count)]


def test_touches_that_come_too_late_are_time_outs(world: World) -> None:
    """As when the processor was busy: nsqd has timed the messages out, and redelivers them."""
    batch = world.batch(1, 2)

    def tick(now_s: float) -> tuple[int, int, bool]:
        world.now_s = now_s
        world.subscription.tick()
        stats = world.subscription.stats()
        return stats.touched, stats.timed_out, batch.is_live

    assert tick(59.9) == (2, 0, True)
    assert tick(119.8) == (4, 0, True)
    batch.finish_one(batch.ids[0])
    assert tick(179.9) == (4, 1, False)
