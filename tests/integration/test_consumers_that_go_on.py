"""A consumer whose loop has ended: it goes on after an idle time, and says so in any other case."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import gevent
import pytest

from nsqd_py.client import Consumer, WrongPlace, aio
from nsqd_py.client import gevent as on_gevent
from nsqd_py.client.message import MessageBatch
from tests.support.aio_client import run_in_new_loop
from tests.support.nsqd_process import NsqdProcess, wait_until

pytestmark = pytest.mark.ours

CHANNEL = "c"
IDLE_S = 0.5
Fill = Callable[..., None]


@pytest.fixture(params=[Consumer, on_gevent.Consumer], ids=["threads", "gevent"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def settings(shared_nsqd: NsqdProcess) -> dict[str, Any]:
    return {"nsqd_tcp_addresses": f"127.0.0.1:{shared_nsqd.tcp_port}"}


@pytest.fixture
def fill(shared_nsqd: NsqdProcess, topic: str) -> Fill:
    """`fill(b"one", ...)` publishes messages."""

    def publish(*bodies: bytes) -> None:
        shared_nsqd.mpub(topic, list(bodies))

    return publish


def finished(loop: Any) -> list[bytes]:
    bodies = []
    for item in loop:
        bodies += item.bodies if isinstance(item, MessageBatch) else [item.body]
        item.finish()
    return bodies


async def finished_async(loop: Any) -> list[bytes]:
    bodies = []
    async for item in loop:
        bodies += item.bodies if isinstance(item, MessageBatch) else [item.body]
        item.finish()
    return bodies


# ---- loops that ended because no message came


def test_loops_that_were_idle_go_on(
    kind: Any, shared_nsqd: NsqdProcess, topic: str, settings: dict[str, Any], fill: Fill
) -> None:
    consumer = kind(topic, CHANNEL, **settings)
    for name, bodies in (("messages", [b"0", b"1"]), ("messages", [b"2"]), ("batches", [b"3"]), ("messages", [b"4"])):
        fill(*bodies)
        got: list[bytes] = []
        while not got:  # a busy machine may not connect in time
            got = finished(getattr(consumer, name)(IDLE_S))
        assert got == bodies
        assert not consumer.running
    assert consumer.stats().finished == 5
    shared_nsqd.wait_for_channel(topic, CHANNEL, depth=0, in_flight_count=0, client_count=0)
    consumer.stop()
    with pytest.raises(WrongPlace, match=f"the consumer of {topic}/c was stopped"):
        next(consumer.messages(IDLE_S))


def test_loops_of_asyncio_that_were_idle_go_on(
    shared_nsqd: NsqdProcess, topic: str, settings: dict[str, Any], fill: Fill
) -> None:
    async def consume() -> None:
        consumer = aio.Consumer(topic, CHANNEL, **settings)
        for name, bodies in (("messages", [b"0", b"1"]), ("messages", [b"2"]), ("batches", [b"3"]), ("messages", [b"4"])):
            fill(*bodies)
            got: list[bytes] = []
            while not got:
                got = await finished_async(getattr(consumer, name)(IDLE_S))
            assert got == bodies
            assert not consumer.running
        assert consumer.stats().finished == 5
        await consumer.stop()
        with pytest.raises(WrongPlace, match=f"the consumer of {topic}/c was stopped"):
            await anext(consumer.messages(IDLE_S))

    run_in_new_loop(consume())
    shared_nsqd.wait_for_channel(topic, CHANNEL, depth=0, in_flight_count=0, client_count=0)


# ---- stopped consumers say so


AGAIN: dict[str, Callable[[Any], object]] = {
    "iter": lambda consumer: next(iter(consumer)),
    "messages": lambda consumer: next(consumer.messages(IDLE_S)),
    "batches": lambda consumer: next(consumer.batches(IDLE_S)),
    "next": lambda consumer: consumer.next(IDLE_S),
    "start": lambda consumer: consumer.start(),
    "with": lambda consumer: consumer.__enter__(),
}


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_a_loop_that_was_left_stops_its_consumer(
    kind: Any, topic: str, settings: dict[str, Any], fill: Fill, again: Callable[[Any], object]
) -> None:
    fill(b"0", b"1")
    consumer = kind(topic, CHANNEL, **settings)
    for message in consumer:
        message.finish()
        break
    with pytest.raises(WrongPlace, match="was stopped, or its loop was left"):
        again(consumer)


@pytest.mark.parametrize("again", [AGAIN["start"], AGAIN["with"], lambda consumer: consumer.run()], ids=["start", "with", "run"])
def test_a_consumer_that_was_stopped_does_not_start(
    kind: Any, topic: str, settings: dict[str, Any], again: Callable[[Any], object]
) -> None:
    consumer = kind(topic, CHANNEL, print, **settings)
    with consumer:
        assert consumer.running
    with pytest.raises(WrongPlace, match="was stopped"):
        again(consumer)


AGAIN_ASYNC: dict[str, Callable[[Any], Any]] = {
    "iter": lambda consumer: anext(aiter(consumer)),
    "batches": lambda consumer: anext(consumer.batches(IDLE_S)),
    "next": lambda consumer: consumer.next(IDLE_S),
    "start": lambda consumer: consumer.start(),
    "with": lambda consumer: consumer.__aenter__(),
}


@pytest.mark.parametrize("again", AGAIN_ASYNC.values(), ids=AGAIN_ASYNC)
def test_a_loop_of_asyncio_that_was_left_stops_its_consumer(
    shared_nsqd: NsqdProcess, topic: str, settings: dict[str, Any], fill: Fill, again: Callable[[Any], Any]
) -> None:
    async def consume() -> None:
        consumer = aio.Consumer(topic, CHANNEL, **settings)
        async for message in consumer:
            message.finish()
            break
        assert not consumer.running
        with pytest.raises(WrongPlace, match="was stopped, or its loop was left"):
            await again(consumer)
        await consumer.wait(40)

    fill(b"0", b"1")
    run_in_new_loop(consume())
    shared_nsqd.wait_for_channel(topic, CHANNEL, depth=1, in_flight_count=0, client_count=0)


def test_a_stop_before_the_start_ends_the_run(kind: Any, topic: str, settings: dict[str, Any]) -> None:
    """As by a SIGTERM that comes early."""
    consumer = kind(topic, CHANNEL, print, **settings)
    consumer.begin_to_stop()
    consumer.run()
    assert not consumer.running


def test_a_stop_before_the_start_ends_the_run_on_asyncio(topic: str, settings: dict[str, Any]) -> None:
    async def consume() -> None:
        consumer = aio.Consumer(topic, CHANNEL, print, **settings)
        consumer.begin_to_stop()
        await asyncio.wait_for(consumer.run(), 40)
        assert not consumer.running

    run_in_new_loop(consume())


# ---- one message at a time


def test_next_finishes_the_message_before(
    kind: Any, shared_nsqd: NsqdProcess, topic: str, settings: dict[str, Any], fill: Fill
) -> None:
    fill(b"0", b"1", b"2")
    with kind(topic, CHANNEL, **settings) as consumer:
        first, second = consumer.next(40), consumer.next(40)
        assert (first.body, first.is_answered, second.body, second.is_answered) == (b"0", True, b"1", False)
        second.finish()
        assert consumer.next(40).body == b"2"
    shared_nsqd.wait_for_channel(topic, CHANNEL, depth=1, in_flight_count=0, client_count=0)  # the last one is back
    assert consumer.stats().finished == 2


def test_next_returns_none_after_its_time(kind: Any, topic: str, settings: dict[str, Any], fill: Fill) -> None:
    with kind(topic, CHANNEL, **settings) as consumer:
        assert consumer.next(0.01) is None
        fill(b"0")
        assert consumer.next(40).body == b"0"
        consumer.begin_to_stop()
        assert consumer.next(40) is None
        with pytest.raises(WrongPlace, match="was stopped"):
            consumer.next(40)


def test_next_on_asyncio(shared_nsqd: NsqdProcess, topic: str, settings: dict[str, Any], fill: Fill) -> None:
    async def consume() -> None:
        async with aio.Consumer(topic, CHANNEL, **settings) as consumer:
            assert await consumer.next(0.01) is None
            waiting = asyncio.create_task(consumer.next(40))
            await asyncio.sleep(0)
            with pytest.raises(WrongPlace, match="another task waits"):
                await consumer.next(40)
            fill(b"0", b"1", b"2")
            first = await waiting
            second = await consumer.next(40)
            assert first is not None
            assert second is not None
            assert (first.body, first.is_answered, second.body, second.is_answered) == (b"0", True, b"1", False)
            third = await consumer.next(40)
            assert third is not None
        assert consumer.stats().finished == 2

    run_in_new_loop(consume())
    shared_nsqd.wait_for_channel(topic, CHANNEL, depth=1, in_flight_count=0, client_count=0)


@pytest.mark.parametrize("limited", ["wait_for", "timeout"])
def test_a_time_limit_on_the_next_message_ends_no_loop(topic: str, settings: dict[str, Any], fill: Fill, limited: str) -> None:
    async def within(limit_s: float, loop: Any) -> Any:
        if limited == "wait_for":
            return await asyncio.wait_for(anext(loop), limit_s)
        async with asyncio.timeout(limit_s):
            return await anext(loop)

    async def consume() -> list[bytes]:
        loop = aiter(aio.Consumer(topic, CHANNEL, **settings))
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


def test_batches_of_a_consumer_that_was_started(kind: Any, topic: str, settings: dict[str, Any], fill: Fill) -> None:
    """Messages that came before the loop are in their batch too."""
    fill(b"0", b"1", b"2")
    with kind(topic, CHANNEL, max_in_flight=10, **settings) as consumer:
        wait_until(lambda: gevent.sleep(0.001) or consumer.stats().in_flight == 3)
        loop = consumer.batches()
        batch = next(loop)
        assert batch.bodies == [b"0", b"1", b"2"]
        batch.finish()
        loop.close()
