"""Plain functions as handlers on asyncio: they run in threads, so that the event loop goes on."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from nsqd_py.client import aio
from tests.support.aio_client import run_in_new_loop, until

pytestmark = pytest.mark.ours

tenant = contextvars.ContextVar("tenant", default="")


@pytest.fixture
def consumer(address, topic) -> Callable[..., aio.Consumer]:
    """`consumer(handler, ...)` makes one without back-off."""
    settings = {"nsqd_tcp_addresses": address, "default_requeue_delay": 0, "max_backoff_duration": 0}
    return partial(aio.Consumer, topic, "c", **settings)


@pytest.mark.parametrize("role", ["handler", "batch_handler", "on_give_up"])
def test_a_plain_function_stops_no_event_loop(shared_nsqd, topic, consumer, role):
    """The handler waits until the event loop has done something."""
    has_begun, may_end = asyncio.Event(), threading.Event()
    places = []

    def wait(item):
        loop.call_soon_threadsafe(has_begun.set)
        assert may_end.wait(40)
        places.append((threading.get_ident() == loop_thread, tenant.get()))
        if role == "batch_handler":
            item.finish()

    def fail(item):
        raise ValueError

    async def consume():
        nonlocal loop, loop_thread
        loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()
        tenant.set("acme")
        given = {role: wait}
        if role == "on_give_up":
            given |= {"handler": fail, "max_attempts": 1}
        async with consumer(**given) as running:
            await asyncio.wait_for(has_begun.wait(), 40)
            may_end.set()
            await until(lambda: running.stats().finished)

    loop: Any
    loop_thread = 0
    shared_nsqd.pub(topic, b"x")
    run_in_new_loop(consume())
    assert places == [(False, "acme")]


def test_plain_functions_run_side_by_side(shared_nsqd, topic, consumer):
    all_run = threading.Barrier(20, timeout=40)

    def meet(message):
        all_run.wait()

    async def consume():
        async with consumer(meet, concurrency=20) as running:
            await until(lambda: running.stats().finished == 20)

    shared_nsqd.mpub(topic, [b"x"] * 20)
    run_in_new_loop(consume())


def test_errors_of_a_plain_function_are_failures(shared_nsqd, topic, consumer):
    def handle(message):
        if message.attempts < 3:
            raise StopIteration

    async def consume():
        async with consumer(handle) as running:
            await until(lambda: running.stats().finished)
            return running.stats().requeued

    shared_nsqd.pub(topic, b"x")
    assert run_in_new_loop(consume()) == 2


def test_a_plain_function_that_hangs_does_not_keep_the_process(shared_nsqd, script, topic):
    shared_nsqd.pub(topic, b"x")
    printed = script("""
import asyncio, threading
from nsqd_py.client import aio

async def main():
    has_begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def hang(message):
        loop.call_soon_threadsafe(has_begun.set)
        threading.Event().wait()

    consumer = aio.Consumer(TOPIC, "c", hang, nsqd_tcp_addresses=ADDRESS)
    await consumer.start()
    await asyncio.wait_for(has_begun.wait(), 40)
    await consumer.stop(0.1)

asyncio.run(main())
""")
    assert printed == ""
    shared_nsqd.wait_for_channel(topic, "c", depth=1, in_flight_count=0, client_count=0)
