"""A consumer whose loop has ended: it goes on after an idle time, and says so in any other case."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

from nsqd_py.client import WrongPlace, aio
from nsqd_py.client.message import MessageBatch
from tests.support.aio_client import run_in_new_loop

pytestmark = pytest.mark.ours

IDLE_S = 0.5
Make = Callable[..., Any]
Fill = Callable[..., None]


@pytest.fixture
def make(kit, address, topic) -> Make:
    """`make(...)` makes a consumer."""
    return partial(kit.consumer, topic, "c", nsqd_tcp_addresses=address)


@pytest.fixture
def make_aio(address, topic) -> Make:
    return partial(aio.Consumer, topic, "c", nsqd_tcp_addresses=address)


@pytest.fixture
def fill(shared_nsqd, topic) -> Fill:
    """`fill(b"one", ...)` publishes messages."""
    return lambda *bodies: shared_nsqd.mpub(topic, bodies)


def finished(loop: Any) -> list[bytes]:
    bodies = []
    for item in loop:
        bodies += item.bodies if isinstance(item, MessageBatch) else [item.body]
        item.finish()
    return bodies


def test_loops_that_were_idle_go_on(make, shared_nsqd, topic, fill):
    consumer = make()
    for name, bodies in (
        ("messages", [b"0", b"1"]),
        ("messages", [b"2"]),
        ("batches", [b"3"]),
        ("messages", [b"4"]),
    ):
        fill(*bodies)
        got = []
        while not got:  # a busy machine may not connect in time
            got = finished(getattr(consumer, name)(IDLE_S))
        assert got == bodies
        assert not consumer.running
    assert consumer.stats().finished == 5
    shared_nsqd.wait_for_channel(topic, "c", depth=0, in_flight_count=0, client_count=0)
    consumer.stop()
    with pytest.raises(WrongPlace, match=f"the consumer of {topic}/c was stopped"):
        next(consumer.messages(IDLE_S))


# ---- stopped consumers say so


AGAIN: dict[str, Callable[[Any], object]] = {
    "iter": lambda consumer: next(iter(consumer)),
    "messages": lambda consumer: next(consumer.messages(IDLE_S)),
    "batches": lambda consumer: next(consumer.batches(IDLE_S)),
    "next": lambda consumer: consumer.next(IDLE_S),
    "start": lambda consumer: consumer.start(),
    "with": lambda consumer: consumer.__enter__(),
    "run": lambda consumer: consumer.run(),
}


@pytest.mark.parametrize("again", [name for name in AGAIN if name != "run"])
def test_a_loop_that_was_left_stops_its_consumer(make, shared_nsqd, topic, fill, again):
    fill(b"0", b"1")
    consumer = make()
    for message in consumer:
        message.finish()
        break
    assert not consumer.running
    with pytest.raises(WrongPlace, match="was stopped, or its loop was left"):
        AGAIN[again](consumer)
    shared_nsqd.wait_for_channel(topic, "c", depth=1, in_flight_count=0, client_count=0)


@pytest.mark.parametrize("again", ["start", "with", "run"])
def test_a_consumer_that_was_stopped_does_not_start(make, again):
    consumer = make(print)
    with consumer:
        assert consumer.running
    with pytest.raises(WrongPlace, match="was stopped"):
        AGAIN[again](consumer)


def test_a_stop_before_the_start_ends_the_run(make):
    """As by a SIGTERM that comes early."""
    consumer = make(print)
    consumer.begin_to_stop()
    consumer.run()
    assert not consumer.running


# ---- one message at a time


def test_next_finishes_the_message_before(make, shared_nsqd, topic, fill):
    fill(b"0", b"1", b"2")
    with make() as consumer:
        first, second = consumer.next(40), consumer.next(40)
        assert (first.body, first.is_answered, second.body, second.is_answered) == (b"0", True, b"1", False)
        second.finish()
        assert consumer.next(40).body == b"2"
    # The last one is back.
    shared_nsqd.wait_for_channel(topic, "c", depth=1, in_flight_count=0, client_count=0)
    assert consumer.stats().finished == 2


def test_next_returns_none_after_its_time(make, fill):
    with make() as consumer:
        assert consumer.next(0.01) is None
        fill(b"0")
        assert consumer.next(40).body == b"0"
        consumer.begin_to_stop()
        assert consumer.next(40) is None
        with pytest.raises(WrongPlace, match="was stopped"):
            consumer.next(40)


def test_two_tasks_do_not_wait_for_the_next_message(make_aio, fill):
    async def consume():
        async with make_aio() as consumer:
            both = [asyncio.create_task(consumer.next(40)) for _ in range(2)]
            (refused,), _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            with pytest.raises(WrongPlace, match="another task waits"):
                await refused
            fill(b"0")
            assert (await both[0]).body == b"0"

    run_in_new_loop(consume())


@pytest.mark.parametrize("limited", ["wait_for", "timeout"])
def test_a_time_limit_on_the_next_message_ends_no_loop(make_aio, fill, limited):
    async def within(limit_s, loop):
        if limited == "wait_for":
            return await asyncio.wait_for(anext(loop), limit_s)
        async with asyncio.timeout(limit_s):
            return await anext(loop)

    async def consume():
        loop = aiter(make_aio())
        bodies = []
        async with aclosing(loop):
            with pytest.raises(TimeoutError):  # before the consumer is connected
                await within(0.0001, loop)
            fill(b"0", b"1")
            bodies += [(await within(40, loop)).body, (await within(40, loop)).body]
            with pytest.raises(TimeoutError):
                await within(0.01, loop)
            fill(b"2")
            bodies.append((await within(40, loop)).body)
        return bodies

    assert run_in_new_loop(consume()) == [b"0", b"1", b"2"]


def test_batches_of_a_consumer_that_was_started(make, kit, fill):
    """Messages that came before the loop are in their batch too."""
    fill(b"0", b"1", b"2")
    with make(max_in_flight=10) as consumer:
        kit.wait(lambda: consumer.stats().in_flight == 3)
        loop = consumer.batches()
        batch = next(loop)
        assert batch.bodies == [b"0", b"1", b"2"]
        batch.finish()
        loop.close()
