"""Batches whose messages several threads answer, while another one takes the output."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from nsqd_py.client.blocking.nsqd_subscription import LockedBatch
from tests.support.subscription import World, message_id

_THREADS = 4
_MESSAGES = 2000


@pytest.fixture(autouse=True)
def threads_change_often() -> Iterator[None]:
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.fixture
def world() -> World:
    world = World(max_in_flight=_MESSAGES)
    world.subscription.make_batch = partial(LockedBatch, lock=threading.RLock())
    world.sent()
    return world


def test_each_message_is_finished_once_by_one_of_many_threads(world: World) -> None:
    batch = world.batch(*range(_MESSAGES))
    sent: list[bytes] = []
    has_ended = threading.Event()

    def take_output() -> None:
        while not has_ended.is_set():
            sent.extend(world.window.take_output().splitlines())

    def finish_all() -> int:
        return sum(batch.finish_if_open(message_id(number)) for number in range(_MESSAGES))

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


def test_output_that_comes_while_it_is_taken_is_announced(world: World) -> None:
    """Otherwise a FIN would wait until something else wakes the I/O thread."""
    batch = world.batch(*range(_MESSAGES))
    finishing = threading.Thread(target=lambda: [batch.finish_one(message_id(number)) for number in range(_MESSAGES)])
    finishing.start()
    while finishing.is_alive():
        if world.window.has_output:
            world.window.take_output()
    assert world.window.has_output or world.window.take_output() == b""
