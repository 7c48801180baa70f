"""Where a client may be used: thread pools, event loops, patched processes, forks, and the end of the interpreter."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed
from concurrent.futures import wait as wait_for_futures
from contextlib import suppress
from typing import Any

import pytest

from nsqd_py.client import Consumer, FlushFailed, NoNsqd, Producer, PublishFailed, TimedOut, WrongPlace, aio
from nsqd_py.client import gevent as on_gevent
from nsqd_py.client.blocking.backend import Poller
from nsqd_py.client.blocking.publishing_core import NonBlockingProducer
from nsqd_py.protocol import outgoing
from tests.support.aio_client import run_in_new_loop
from tests.support.fake_nsqd import listening, read_late
from tests.support.nsqd_side import identity
from tests.support.web_server import Reply, WebServer
from tests.support.wire import mpub_body

pytestmark = pytest.mark.ours


def test_an_nsqd_that_is_forgotten_before_it_answers(topic):
    """Its connection is closed once it opens, and the next publish does not wait for it."""
    has_come, may_answer, is_closed = threading.Event(), threading.Event(), threading.Event()

    def behave(sock):
        sock.recv(65536)
        has_come.set()
        assert may_answer.wait(40)
        sock.sendall(identity())
        while sock.recv(65536):
            pass
        is_closed.set()

    with listening(behave) as address, WebServer() as lookupd, suppress(TimedOut):
        named = {"broadcast_address": "127.0.0.1", "tcp_port": int(address.partition(":")[2])}
        lookupd.reply = lambda _: Reply(
            body=json.dumps({"producers": [] if has_come.is_set() else [named]}).encode()
        )
        producer = Producer(lookupd_http_addresses=[lookupd.url], lookupd_poll_interval=0.05)
        producer.publish_soon(topic, b"waits for it")
        assert has_come.wait(40)
        lookupd.wait_until_asked(len(lookupd.asked) + 3)
        with pytest.raises(NoNsqd, match="no nsqd is known"):
            producer.publish(topic, b"x")
        may_answer.set()
        assert is_closed.wait(20)
        producer.close(0)


# ---- threads


def test_futures_of_publishes(address, topic):
    reported = []
    with Producer(address) as producer:
        futures = [producer.publish_soon(topic, b"%d" % number) for number in range(100)]
        futures[0].add_done_callback(reported.append)
        assert [future.result(10) for future in futures] == [None] * 100
        assert reported == futures[:1]
        futures[0].add_done_callback(reported.append)
        assert (reported, futures[0].done()) == (futures[:1] * 2, True)
        refused = producer.publish_soon(topic, b"x" * (2 << 20))
        assert isinstance(refused.exception(10), PublishFailed)
        with pytest.raises(FlushFailed):
            producer.flush()


def test_futures_with_concurrent_futures(address, topic):
    with Producer(address) as producer:
        for _ in range(100):
            futures = [producer.publish_soon(topic, b"%d" % number) for number in range(5)]
            assert wait_for_futures(futures, 40) == (set(futures), set())
            futures = [producer.publish_soon(topic, b"%d" % number) for number in range(5)]
            assert {future.result() for future in as_completed(futures, 40)} == {None}
            first = [producer.publish_soon(topic, b"x"), producer.publish_soon(topic, b"y")]
            assert wait_for_futures(first, 40, return_when=FIRST_COMPLETED).done
        refused = producer.publish_soon(topic, b"x" * (2 << 20), lambda _: None)
        stored = producer.publish_soon(topic, b"x")
        assert wait_for_futures([refused, stored], 40).done == {refused, stored}
        assert isinstance(refused.exception(), PublishFailed)
        assert (refused.cancel(), refused.cancelled(), refused.running()) == (False, False, False)


def test_futures_in_an_event_loop(address, topic):
    async def publish():
        with Producer(address) as producer:
            futures = [
                producer.publish_soon(topic, b"x"),
                producer.publish_soon(topic, b"x" * (2 << 20), lambda _: None),
            ]
            return await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)

    stored, refused = run_in_new_loop(publish())
    assert stored is None and isinstance(refused, PublishFailed)


def test_concurrent_futures_stop_no_greenlets(address, topic):
    with on_gevent.Producer(address) as producer, pytest.raises(WrongPlace, match="wait by `result`"):
        wait_for_futures([producer.publish_soon(topic, b"x")], 40)


class CallbackFailed(BaseException):
    """Such as the exception of pytest.fail()."""


producers = pytest.mark.parametrize("shell", [Producer, on_gevent.Producer], ids=["threads", "gevent"])


@producers
@pytest.mark.parametrize("is_over", [False, True], ids=["before", "after"])
def test_callbacks_that_fail_are_logged(shell, address, topic, is_over, caplog):
    called = []

    def fail(future):
        called.append(future)
        raise CallbackFailed

    async def never_awaited(future):
        pass

    with shell(address) as producer:
        future = producer.publish_soon(topic, b"x")
        if is_over:
            future.result(40)
        future.add_done_callback(fail)
        future.add_done_callback(never_awaited)
        future.add_done_callback(called.append)
        future.result(40)
        producer.flush()
    assert called == [future, future]
    assert [line.partition(":")[0] for line in caplog.messages] == ["callback of a publish"] * 2
    assert "returned an awaitable" in caplog.text


def test_futures_asked_at_the_moment_of_the_answer(address, topic):
    with Producer(address) as producer, ThreadPoolExecutor(4) as pool:
        for _ in range(300):
            future = producer.publish_soon(topic, b"x")
            assert [one.result(10) for one in [pool.submit(future.result, 10) for _ in range(3)]] == [
                None
            ] * 3


def test_on_done_may_publish_and_must_not_wait(shared_nsqd, address, topic):
    over = threading.Event()

    def on_done(error):
        producer.publish_soon(topic, b"two")
        for wait in (producer.flush, producer.ping, lambda: producer.publish(topic, b"never")):
            with pytest.raises(WrongPlace):
                wait()
        over.set()

    with Producer(address) as producer:
        producer.publish_soon(topic, b"one", on_done)
        assert over.wait(40)
    assert shared_nsqd.topic_stats(topic)["depth"] == 2


def test_a_producer_on_gevent_belongs_to_one_thread(address, topic):
    with on_gevent.Producer(address) as producer:
        producer.publish(topic, b"x")
        with ThreadPoolExecutor(1) as pool, pytest.raises(WrongPlace, match=r"use nsqd_py\.client,"):
            pool.submit(producer.publish, topic, b"x").result(10)
        producer.flush(timeout_s=1)  # nothing of it is left


class CountedPoller(Poller):
    """Notes how long each wait may take."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float] = []

    def wait(self, descriptors: Any, timeout_s: float) -> set[int]:
        self.waits_s.append(timeout_s)
        return super().wait(descriptors, min(timeout_s, 0.01))


def test_a_producer_that_has_nothing_to_do_does_not_wake(address):
    """A thousand of them in a process woke so often that few of their first publishes came through on a busy machine."""
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        connecting = NonBlockingProducer(f"127.0.0.1:{hangs.getsockname()[1]}")
        core = connecting._core
        core.poller = poller = CountedPoller()
        for _ in range(3):
            core.step(0.2)
        assert poller.waits_s == [0.2] * 3
        core.close()
    core = NonBlockingProducer(address)._core
    while not core.dispatcher.is_connected:
        core.step(0.01)
    assert core.idle_s == 2
    core.close()


MANY_PRODUCERS = """
import threading, time
from nsqd_py.client import Producer
producers = [Producer(ADDRESS, publish_timeout_s=250) for _ in range(COUNT)]
if AT_ONCE:
    threads = [threading.Thread(target=producer.publish, args=(TOPIC, b"x")) for producer in producers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    for producer in producers:
        producer.publish(TOPIC, b"x")
print(time.process_time())
for producer in producers:
    producer.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True], ids=["one after the other", "at once"])
def test_the_first_publishes_of_a_thousand_producers(shared_nsqd, script, topic, at_once):
    """In processor time, since the machine may be busy. It grew with the square of their number: 260 were through after 30 s."""
    assert float(script(MANY_PRODUCERS, COUNT=1000, AT_ONCE=at_once)) < 10
    assert shared_nsqd.topic_stats(topic)["depth"] == 1000


# ---- event loops


@producers
def test_a_publish_that_waits_is_refused_in_an_event_loop(shell, address, topic):
    async def publish():
        with shell(address) as producer, pytest.raises(WrongPlace, match=r"nsqd_py\.client\.aio"):
            producer.publish(topic, b"x")

    run_in_new_loop(publish())


@pytest.mark.parametrize("shell", [Consumer, on_gevent.Consumer], ids=["threads", "gevent"])
def test_a_loop_that_waits_is_refused_in_an_event_loop(shell, address, topic):
    async def consume():
        with pytest.raises(WrongPlace, match=r"nsqd_py\.client\.aio"):
            next(shell(topic, "c", nsqd_tcp_addresses=address).messages())

    run_in_new_loop(consume())


def test_code_beside_a_loop_may_wait(address, topic):
    """Playwright's sync API runs an event loop in the thread of its caller, and switches greenlets."""

    def publish():
        with Producer(address) as producer:
            producer.publish(topic, b"x")
        over.set()

    async def run_a_callback():
        asyncio.get_running_loop().call_soon(publish)
        assert await asyncio.to_thread(over.wait, 40)

    over = threading.Event()
    run_in_new_loop(run_a_callback())


def test_a_client_for_asyncio_belongs_to_one_loop(address, topic):
    producer = aio.Producer(address)
    run_in_new_loop(producer.publish(topic, b"x"))
    with pytest.raises(WrongPlace, match="another event loop"):
        run_in_new_loop(producer.publish(topic, b"x"))
    run_in_new_loop(producer.close())


def test_cancelled_publishes_harm_nobody(shared_nsqd, address, topic):
    async def publish():
        async with aio.Producer(address, window=10) as producer:
            await producer.ping()
            tasks = [asyncio.create_task(producer.publish(topic, b"%d" % number)) for number in range(100)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert results[1::2] == [None] * 50
            await producer.publish(topic, b"last")

    run_in_new_loop(publish())
    assert shared_nsqd.topic_stats(topic)["depth"] >= 51


def test_a_cancelled_handler_gives_its_message_back(shared_nsqd, address, topic):
    async def consume():
        has_begun = asyncio.Event()

        async def handle(message):
            has_begun.set()
            await asyncio.Event().wait()

        async with aio.Producer(address) as producer:
            await producer.publish(topic, b"x")
        consumer = aio.Consumer(topic, "c", handle, nsqd_tcp_addresses=address)
        await consumer.start()
        await asyncio.wait_for(has_begun.wait(), 40)
        await consumer.stop(timeout_s=0.1)

    run_in_new_loop(consume())
    shared_nsqd.wait_for_channel(topic, "c", depth=1, in_flight_count=0, client_count=0)


def test_an_event_loop_that_is_busy_keeps_its_messages(shared_nsqd, address, topic):
    async def consume():
        received = []
        async with aio.Producer(address) as producer:
            await producer.multi_publish(topic, [b"slow", b"next"])
        settings = {"msg_timeout": "1s", "heartbeat_interval": "1s"}
        async for message in aio.Consumer(topic, "c", nsqd_tcp_addresses=address, **settings).messages(5):
            received.append((message.body, message.attempts))
            time.sleep(3.5 if message.body == b"slow" else 0)
            if message.body == b"next":
                break
        return received

    assert run_in_new_loop(consume()) == [(b"slow", 1), (b"next", 1)]


def test_an_nsqd_that_does_not_read_holds_no_event_loop_up(topic):
    """The body is larger than the sockets hold."""
    body = mpub_body([b"x" * (24 << 20)])
    may_read = threading.Event()

    async def publish(address):
        async with aio.Producer(address) as producer:
            stored = await producer.send_mpub_body(topic, body, 1)
            done, _ = await asyncio.wait([stored], timeout=0.05)
            may_read.set()
            await stored
        return bool(done)

    with listening(
        read_late(len(outgoing.mpub_head(topic, len(body))) + len(body), may_read=may_read)
    ) as address:
        assert run_in_new_loop(publish(address)) is False


def test_what_an_event_loop_left_leaves_with_the_interpreter(shared_nsqd, script, topic):
    script("""
import asyncio
from nsqd_py.client import aio
async def publish():
    producer = aio.Producer(ADDRESS)
    for number in range(100):
        await producer.publish_soon(TOPIC, b"%d" % number)
asyncio.run(publish())
""")
    assert shared_nsqd.topic_stats(topic)["depth"] == 100


# ---- processes


def test_greenlets_where_gevent_has_patched_threads(script):
    printed = script("""
from gevent import monkey
monkey.patch_all()
import gevent, threading
from nsqd_py.client import Consumer, Producer
assert type(threading.current_thread()).__name__ == "_MainThread"
with Producer(ADDRESS) as producer:
    gevent.joinall([gevent.spawn(producer.publish, TOPIC, b"%d" % n) for n in range(50)], raise_error=True)
bodies, all_run, over = [], threading.Barrier(50, timeout=40), threading.Event()
def handle(message):
    all_run.wait()
    bodies.append(message.body)
    if len(bodies) == 50:
        over.set()
with Consumer(TOPIC, "c", handle, nsqd_tcp_addresses=ADDRESS, max_in_flight=50, concurrency=50):
    assert over.wait(40)
print(len(set(bodies)))
""")
    assert printed == "50\n"


LATE_PATCH = """
import os
from nsqd_py.client import Consumer, Producer
bodies = []
def make():
    producer = Producer(ADDRESS, publish_timeout_s=20)
    return producer, Consumer(TOPIC, "c", lambda message: bodies.append(message.body), nsqd_tcp_addresses=ADDRESS)
if WHEN != "imported":
    producer, consumer = make()
if WHEN == "used before a fork":
    producer.publish(TOPIC, b"parent")
    consumer.start()
    while not consumer.stats().finished:
        pass
    consumer.stop()
    consumer = make()[1]
if WHEN.endswith("fork") and (child := os.fork()):
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
from gevent import monkey
monkey.patch_all()
import gevent
if WHEN == "imported":
    producer, consumer = make()
bodies.clear()
gevent.joinall([gevent.spawn(producer.publish, TOPIC, b"%d" % n) for n in range(20)], raise_error=True)
producer.publish_soon(TOPIC, b"soon").result(20)
producer.flush()
with consumer:
    while len(bodies) < 21:
        gevent.idle()
producer.close()
print(len(bodies), flush=True)
if WHEN.endswith("fork"):
    os._exit(0)
"""


@pytest.mark.parametrize("when", ["imported", "made", "made before a fork", "used before a fork"])
def test_gevent_may_patch_threads_after_the_import(script, when):
    """As in the workers of `gunicorn -k gevent --preload`."""
    assert script(LATE_PATCH, WHEN=when) == "21\n"


def test_a_future_of_the_parent_fails_in_a_child(script):
    printed = script("""
import os, socket
from nsqd_py.client import Producer
server = socket.create_server(("127.0.0.1", 0))
producer = Producer(f"127.0.0.1:{server.getsockname()[1]}")
future = producer.publish_soon(TOPIC, b"x")
if not os.fork():
    print(type(future.exception(5)).__name__, flush=True)
    os._exit(0)
os.wait()
print(future.done(), flush=True)
os._exit(0)
""")
    assert printed == "ConnectionLost\nFalse\n"


def test_a_fork_logs_nothing_in_the_child(script):
    """Another thread of the parent may hold the lock of the log, which nothing releases in the child."""
    printed = script("""
from nsqd_py.client import Consumer, Producer
import logging, os, signal, sys, threading
Producer(ADDRESS).publish(TOPIC, b"x")
log = logging.StreamHandler(sys.stdout)
logging.getLogger().addHandler(log)
loop = iter(Consumer(TOPIC, "c", nsqd_tcp_addresses=ADDRESS))
next(loop)
threading.Thread(target=lambda: log.acquire() or threading.Event().wait(), daemon=True).start()
while log.lock.acquire(blocking=False):
    log.lock.release()
child = os.fork()
if not child:
    os._exit(5)
signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
signal.alarm(10)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
""")
    assert printed == "5\n"
