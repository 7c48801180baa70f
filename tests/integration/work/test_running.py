"""An app with a real nsqd: what becomes of messages, stops, and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nsqd_py.client import BadClientOption
from nsqd_py.client.errors import WrongPlace
from nsqd_py.protocol.envelope import unwrap
from nsqd_py.work import App, Batch, BatchFailed, Drop, Message, Requeue, Retry
from nsqd_py.work.running import EventLoopStopped
from tests.support.aio_client import run_in_new_loop
from tests.support.module_servers import module_nsqd
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, wait_until

pytestmark = pytest.mark.ours

RETRY = Retry(attempts=2, first_s=0.05, jitter=0)

short_nsqd = module_nsqd("--msg-timeout=1s", "--max-msg-timeout=60s")


@pytest.fixture
def app(address) -> Iterator[App]:
    app = App(nsqd_tcp_addresses=address)
    yield app
    app.close()


def stats_of(running: Any) -> Any:
    return running.stats()[0]


def is_done(nsqd: NsqdProcess, topic: str, channel: str = "work") -> bool:
    """True if the channel has finished all messages."""
    found = nsqd.channel_stats(topic, channel)
    return bool(found) and found["depth"] + found["in_flight_count"] + found["deferred_count"] == 0


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_messages_are_finished_tried_again_or_dead(shared_nsqd, app, topic, is_async) -> None:
    calls = []

    def work(order: dict, message: Message) -> None:
        calls.append((order["id"], message.attempts))
        if order["id"] == "fails":
            raise ValueError("no")
        if order["id"] == "drops":
            raise Drop("late")
        if order["id"] == "again" and message.attempts == 1:
            raise Requeue(0.05)

    async def of_asyncio(order: dict, message: Message) -> None:
        await asyncio.sleep(0)
        work(order, message)

    app.handler(topic, retry=RETRY, concurrency=4)(of_asyncio if is_async else work)
    for name in ("works", "fails", "drops", "again"):
        app.publish(topic, {"id": name})
    app.publish(topic, b"no JSON")
    with app.start() as running:
        wait_until(lambda: stats_of(running).finished == 5, what="all messages to be finished")
        stats = stats_of(running)
    assert sorted(calls) == [
        ("again", 1),
        ("again", 2),
        ("drops", 1),
        ("fails", 1),
        ("fails", 2),
        ("works", 1),
    ]
    assert (stats.retried, stats.dead, stats.dropped, stats.requeued) == (1, 2, 1, 2)
    assert is_done(shared_nsqd, topic)
    assert running.failure is None
    letters = [unwrap(message.body) for message in shared_nsqd.consume_all(f"{topic}.dead", "readers")]
    errors = {body: headers["error"].partition(":")[0] for body, headers in letters}
    assert errors == {b'{"id":"fails"}': "ValueError", b"no JSON": "Undecodable"}


def test_publish_in_an_event_loop_names_publish_async(app, topic) -> None:
    async def publish() -> None:
        app.publish(topic, "text")

    with pytest.raises(WrongPlace, match=r"^App\.publish .*: use await app\.publish_async\(…\)$"):
        run_in_new_loop(publish())


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_long_call_is_touched_until_its_limit(short_nsqd, topic, is_async) -> None:
    """Its message would come again after a second without touches."""
    app = App(nsqd_tcp_addresses=f"127.0.0.1:{short_nsqd.tcp_port}")
    began: list[tuple[str, float]] = []
    may_end = threading.Event()

    def plain(name: str) -> None:
        began.append((name, time.monotonic()))
        may_end.wait(2.5 if name == "long" else 40)

    async def of_asyncio(name: str) -> None:
        began.append((name, time.monotonic()))
        await asyncio.sleep(2.5 if name == "long" else 40)

    function = of_asyncio if is_async else plain
    app.handler(topic, concurrency=2, time_limit_s=4, retry=Retry(first_s=0.05, attempts=2, jitter=0))(
        function
    )
    app.publish(topic, "long")
    app.publish(topic, "hangs")
    with app.start() as running:
        wait_until(lambda: len(began) == 3, what="the message that hangs to come again")
        stats = stats_of(running)
        may_end.set()
        running.begin_to_stop(0)
    assert [name for name, _ in began].count("long") == 1
    first_s, second_s = [began_s for name, began_s in began if name == "hangs"]
    assert second_s - first_s >= 4
    assert stats.timed_out == 1
    app.close()


def test_a_thread_that_hangs_keeps_its_place_and_its_result_is_dropped(app, topic, caplog) -> None:
    calls = []
    may_end = threading.Event()

    @app.handler(topic, time_limit_s=0.2, retry=Retry(attempts=5, first_s=0.05, jitter=0))
    def work(message: Message) -> None:
        calls.append(message.attempts)
        if message.attempts == 1:
            may_end.wait(40)

    app.publish(topic, "hangs")
    with app.start() as running:
        wait_until(lambda: stats_of(running).retried == 1, what="the time limit")
        assert calls == [1]
        may_end.set()
        wait_until(lambda: stats_of(running).finished == 1, what="the second attempt")
    assert calls == [1, 2]
    assert "returned after its time limit" in caplog.text


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_batch_has_one_answer_but_for_the_failed_ones(shared_nsqd, app, topic, is_async) -> None:
    got = []

    def work(orders: list[int], messages: list[Message]) -> None:
        got.append(orders)
        again = {
            index: Requeue(0.05)
            for index, message in enumerate(messages)
            if orders[index] % 2 and message.attempts == 1
        }
        if again:
            raise BatchFailed(again)

    async def of_asyncio(orders: list[int], messages: list[Message]) -> None:
        work(orders, messages)

    app.handler(topic, batch=Batch(most=10, within_s=0.3))(of_asyncio if is_async else work)
    for number in range(20):
        app.publish(topic, number)
    with app.start() as running:
        wait_until(lambda: stats_of(running).finished == 20, what="all messages to be finished")
    assert sorted(sum(got, [])) == sorted([*range(20), *range(1, 20, 2)])
    assert max(map(len, got)) == 10
    assert is_done(shared_nsqd, topic)


def test_a_rate_is_kept(app, topic) -> None:
    began = []

    @app.handler(topic, concurrency=4, rate=20)
    def work(message: Message) -> None:
        began.append(time.monotonic())

    for _ in range(11):
        app.publish(topic, "1")
    with app.start():
        wait_until(lambda: len(began) == 11, what="all calls")
    assert began[-1] - began[0] >= 0.49


def test_a_stop_lets_running_calls_end(shared_nsqd, app, topic) -> None:
    began = threading.Event()
    may_end = threading.Event()

    @app.handler(topic)
    def work(message: Message) -> None:
        began.set()
        may_end.wait(40)

    app.publish(topic, "1")
    running = app.start()
    assert began.wait(40)
    running.begin_to_stop(40)
    assert not running.wait(0.2)
    may_end.set()
    assert running.wait(40)
    assert is_done(shared_nsqd, topic)


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("timeout_s", [0, 1], ids=["twice", "late"])
def test_a_stop_that_takes_too_long_gives_back_what_runs(
    shared_nsqd, app, topic, is_async, timeout_s
) -> None:
    """nsqd itself would wait for the time-out of the message, a minute."""
    began = threading.Event()
    may_end = threading.Event()

    def plain(message: Message) -> None:
        began.set()
        may_end.wait(40)

    async def of_asyncio(message: Message) -> None:
        began.set()
        await asyncio.sleep(40)

    app.handler(topic)(of_asyncio if is_async else plain)
    app.publish(topic, "1")
    running = app.start()
    assert began.wait(40)
    running.begin_to_stop(40)
    running.begin_to_stop(timeout_s)
    assert running.wait(40)
    wait_until(
        lambda: shared_nsqd.channel_stats(topic, "work")["depth"] == 1, what="the message to be queued"
    )
    may_end.set()


@pytest.mark.parametrize("kind", ["plain", "async", "batch", "async batch"])
def test_an_exit_of_a_handler_ends_all_consumers(app, topic, kind) -> None:
    def plain(message: Message) -> None:
        sys.exit(3)

    async def of_asyncio(message: Message) -> None:
        sys.exit(3)

    def batch(messages: list[Message]) -> None:
        sys.exit(3)

    async def async_batch(messages: list[Message]) -> None:
        sys.exit(3)

    settings: dict[str, Any] = {"batch": Batch(5, within_s=0)} if "batch" in kind else {}
    functions = {"plain": plain, "async": of_asyncio, "batch": batch, "async batch": async_batch}
    app.handler(topic, retry=Retry(first_s=60), **settings)(functions[kind])

    @app.handler(f"{topic}.other")
    def other(message: Message) -> None: ...

    app.publish(topic, "1")
    running = app.start()
    assert running.wait(40)
    assert isinstance(running.failure, SystemExit)
    assert not any(stats.is_running for stats in running.stats())


@pytest.mark.parametrize("kind", ["one by one", "batch"])
@pytest.mark.parametrize("way", ["exit", "stop"])
def test_what_ends_the_event_loop_ends_all_consumers(shared_nsqd, app, topic, kind, way) -> None:
    """And not silently all coroutine functions, while the process goes on. The call is completed."""

    async def leave() -> None:
        sys.exit(3)

    async def end_the_loop() -> None:
        if way == "stop":
            asyncio.get_running_loop().stop()
        else:
            task = asyncio.create_task(leave())
            await asyncio.wait([task])
            task.exception()  # or asyncio logs that nobody asked for it
        await asyncio.sleep(0)

    async def one(message: Message) -> None:
        await end_the_loop()

    async def batch(messages: list[Message]) -> None:
        await end_the_loop()

    settings: dict[str, Any] = {"batch": Batch(5, within_s=0)} if kind == "batch" else {}
    app.handler(topic, retry=Retry(first_s=60), **settings)(batch if kind == "batch" else one)

    @app.handler(f"{topic}.other")
    def other(message: Message) -> None: ...

    app.publish(topic, "1")
    running = app.start()
    assert running.wait(20)
    assert isinstance(running.failure, SystemExit if way == "exit" else EventLoopStopped)
    assert not any(stats.is_running for stats in running.stats())
    assert shared_nsqd.channel_stats(topic, "work")["depth"] == 0
    assert shared_nsqd.channel_stats(topic, "work")["deferred_count"] == 0


def test_without_an_nsqd_it_waits_for_one(topic) -> None:
    app = App(nsqd_tcp_addresses="127.0.0.1:1")
    app.handler(topic)(lambda message: None)
    with app.start() as running:
        assert not running.wait(0.2)
        assert stats_of(running).connections == 0
    assert running.failure is None


def test_without_addresses_it_is_refused(monkeypatch, topic) -> None:
    monkeypatch.delenv("NSQD_TCP_ADDRESS", raising=False)
    monkeypatch.delenv("NSQLOOKUPD_HTTP_ADDRESS", raising=False)
    app = App()
    app.handler(topic)(lambda message: None)
    with pytest.raises(BadClientOption, match="address of an nsqd"):
        app.start()
    with pytest.raises(BadClientOption, match="address of an nsqd"):
        app.publish(topic, "1")


def test_a_message_is_deferred_by_a_delay_or_until_a_time(shared_nsqd, app, topic) -> None:
    shared_nsqd.create(topic, "work")
    app.publish(topic, "1", defer_s=timedelta(minutes=10))
    app.publish(topic, "2", at=datetime.now(UTC) + timedelta(minutes=10))
    run_in_new_loop(app.publish_async(topic, "3", defer_s=600))
    app.publish(topic, "4", at=datetime.now(UTC) - timedelta(minutes=10))
    wait_until(
        lambda: shared_nsqd.channel_stats(topic, "work")["deferred_count"] == 3,
        what="three deferred messages",
    )
    assert shared_nsqd.channel_stats(topic, "work")["depth"] == 1
    with pytest.raises(BadClientOption, match="not both"):
        app.publish(topic, "5", defer_s=1, at=datetime.now(UTC))


def test_many_tasks_publish_at_once(shared_nsqd, app, topic) -> None:
    async def publish_all() -> None:
        await asyncio.gather(*(app.publish_async(topic, number) for number in range(3000)))

    run_in_new_loop(publish_all())
    assert shared_nsqd.topic_stats(topic)["message_count"] == 3000


def test_an_app_is_closed_and_publishes_again(shared_nsqd, app, topic) -> None:
    app.publish(topic, "1")
    app.close()
    app.publish(topic, "2")
    assert shared_nsqd.topic_stats(topic)["message_count"] == 2


_RUN = """
import sys, time
from nsqd_py.work import App, Message
app = App(nsqd_tcp_addresses=sys.argv[1])

@app.handler(sys.argv[2])
def work(message: Message) -> None:
    print("begins", flush=True)
    time.sleep(1)
    print("ends", flush=True)

app.run()
print("has stopped")
"""


# Its consumers have started, and `start` returns when a line comes.
_RUN_AFTER_A_LINE = _RUN.replace(
    "app.run()", "start = app.start; app.start = lambda: (start(), sys.stdin.readline())[0]; app.run()"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_consumers_start_lets_a_handler_finish(shared_nsqd, address, topic, number) -> None:
    shared_nsqd.pub(topic, b"1")
    command = [sys.executable, "-c", _RUN_AFTER_A_LINE, address, topic]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None and program.stdin is not None
        assert program.stdout.readline() == "begins\n"
        program.send_signal(number)
        program.stdin.write("go on\n")
        program.stdin.flush()
        assert program.stdout.read() == "ends\nhas stopped\n"
    assert program.returncode == 0
    assert is_done(shared_nsqd, topic)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_runs_an_app_finishes_what_runs(shared_nsqd, address, topic, number) -> None:
    shared_nsqd.pub(topic, b"1")
    command = [sys.executable, "-c", _RUN, address, topic]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, env=os.environ
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begins\n"
        program.send_signal(number)
        assert program.stdout.read() == "ends\nhas stopped\n"
    assert program.returncode == 0
    assert is_done(shared_nsqd, topic)
