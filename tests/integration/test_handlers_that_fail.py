"""Handlers and callbacks that do not run, or end in an unusual way: no message is lost."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import gevent
import pytest
from gevent.event import AsyncResult

from nsqd_py.client import Producer, Requeue, aio
from nsqd_py.client import gevent as gevent_client
from nsqd_py.client.errors import BadClientOption, NsqClientError
from tests.support.aio_client import AioProducer, run_in_new_loop
from tests.support.consumer_drivers import SHELLS, Driver
from tests.support.sweeps import sweep

pytestmark = pytest.mark.ours


ROLES = ["handler", "batch_handler", "on_give_up"]
CONSUMERS = {name: shell.consumer for name, shell in SHELLS.items()} | {"aio": aio.Consumer}
WITHOUT_BACKOFF = {"default_requeue_delay": 0, "max_backoff_duration": 0}


def raises(message: Any) -> None:
    raise ValueError


def in_role(role: str, call: Callable[[Any], object]) -> dict[str, Any]:
    """The settings of a consumer that calls it."""
    failing = {"handler": raises, "max_attempts": 1} if role == "on_give_up" else {}
    return failing | {role: call}


@pytest.fixture
def consume(shared_nsqd, address, topic) -> Iterator[Callable[..., Driver]]:
    """`consume(shell, handler, ...)` publishes a message, and starts a consumer without back-off."""
    drivers = []

    def make(shell, handler=None, **settings):
        shared_nsqd.pub(topic, b"x")
        settings = WITHOUT_BACKOFF | {"max_attempts": 0} | settings
        drivers.append(Driver(shell, topic, "c", handler, nsqd_tcp_addresses=address, **settings))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


async def coroutine(item: Any, *_: Any) -> None:
    pass


def generator(item: Any) -> Iterator[None]:
    yield


async def async_generator(item: Any) -> Any:
    yield


class Awaited:
    async def __call__(self, item: Any) -> None:
        pass

    async def method(self, item: Any) -> None:
        pass

    def generate(self, item: Any) -> Iterator[None]:
        yield


class Log:
    """The lines of a client's log."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def error(self, text: str, *args: object) -> None:
        self.lines.append(text % args)

    debug = info = warning = exception = error


COROUTINES = [
    coroutine,
    functools.partial(functools.partial(coroutine), 1),
    Awaited(),
    Awaited().method,
    functools.partial(Awaited()),
]
GENERATORS = [generator, async_generator, Awaited().generate, functools.partial(generator)]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_known_not_to_run_is_refused(shell, role):
    refused = GENERATORS if shell == "aio" else GENERATORS + COROUTINES
    for handler in refused:
        with pytest.raises(
            BadClientOption, match=rf"^{role} \S+ is a (coroutine|generator) function.*(aio|yield)"
        ):
            CONSUMERS[shell]("t", "c", nsqd_tcp_addresses="h:1", **{role: handler})


INNER = [generator, coroutine, async_generator, lambda _: Future(), lambda _: AsyncResult()]


@pytest.mark.parametrize(("role", "inner", "shell"), sweep(ROLES, INNER, SHELLS))
def test_a_result_that_did_not_run_fails_the_message(consume, shell, inner, role):
    if shell == "aio" and inner is coroutine:
        pytest.skip("is awaited")
    log = Log()
    driver = consume(shell, **in_role(role, lambda item: inner(item)), log=log)
    driver.wait(lambda: driver.stats().requeued >= 20)
    stats = driver.stats()
    assert (stats.finished, stats.given_up) == (0, 0)
    lines = [line for line in log.lines if "returned" in line]
    assert "<lambda> returned a" in lines[0]
    assert len(lines) < 20


@pytest.mark.parametrize("shell", SHELLS)
def test_a_message_whose_giving_up_fails_comes_again(consume, shell):
    attempts = []

    def give_up(message):
        attempts.append(message.attempts)
        if len(attempts) < 3:
            raise ValueError

    driver = consume(shell, raises, max_attempts=1, on_give_up=give_up)
    driver.wait(lambda: driver.stats().finished == 1)
    assert (attempts, driver.stats().given_up) == ([2, 3, 4], 1)


@pytest.mark.parametrize("role", ROLES)
def test_aio_awaits_what_a_plain_function_returns(consume, role):
    ran = []

    async def work(item):
        ran.append(1)
        if role == "batch_handler":
            item.finish()

    driver = consume("aio", **in_role(role, lambda item: work(item)))
    driver.wait(lambda: driver.stats().finished == 1)
    assert ran == [1]


def test_an_on_done_that_is_not_awaited_is_logged(address, topic):
    log = Log()
    with Producer(address, log=log) as producer:
        producer.publish_soon(topic, b"x", coroutine)
    assert ["coroutine returned an awaitable" in line for line in log.lines] == [True]


# ---- exceptions that are no Exception


class Unusual(BaseException):
    """Such as the exception of pytest.fail(), or a gevent.Timeout where gevent has patched threads."""


UNUSUAL = [Unusual, asyncio.CancelledError, GeneratorExit, gevent.Timeout]


@pytest.mark.parametrize(("role", "error", "shell"), sweep(ROLES, UNUSUAL, SHELLS))
def test_an_unusual_failure_is_a_failure(consume, shell, error, role):
    """The only worker goes on: the message comes again, and succeeds."""
    if shell == "aio" and error is GeneratorExit:
        pytest.skip("it closes the coroutines that await the handler")
    attempts = []

    def handle(item):
        if role == "on_give_up" and item.attempts == 1:
            raise ValueError
        attempts.append(1)
        if len(attempts) < 3:
            raise error
        if role == "batch_handler":
            item.finish()

    driver = consume(shell, **in_role(role, handle))
    driver.wait(lambda: driver.stats().finished == 1)
    assert len(attempts) == 3
    assert driver.consumer.running


@pytest.mark.parametrize(("role", "error", "shell"), sweep(ROLES, [SystemExit, KeyboardInterrupt], SHELLS))
def test_a_handler_that_exits_ends_the_consumer(shared_nsqd, address, topic, shell, error, role):
    """`run` raises it. What the consumer had goes back at once, also what no handler has begun."""

    def leave(item):
        raise error("because")

    async def leave_later(item):
        raise error("because")

    call = leave_later if shell == "aio" else leave
    settings = in_role(role, call) | WITHOUT_BACKOFF | {"nsqd_tcp_addresses": address, "max_in_flight": 10}
    shared_nsqd.mpub(topic, [b"x"] * 10)
    consumer = CONSUMERS[shell](topic, "c", **settings)

    async def run():  # the exception of a task may be no SystemExit
        with pytest.raises(error, match="because"):
            await consumer.run()

    if shell == "aio":
        run_in_new_loop(run())
    else:
        with pytest.raises(error, match="because"):
            consumer.run()
    assert not consumer.running
    shared_nsqd.wait_for_channel(topic, "c", depth=10, in_flight_count=0, client_count=0)


@pytest.mark.parametrize("shell", ["aio", "gevent"])
def test_a_worker_that_is_killed_ends_the_consumer(shared_nsqd, address, topic, shell):
    shared_nsqd.pub(topic, b"x")

    async def cancel_itself(message):
        asyncio.current_task().cancel()
        await asyncio.Event().wait()

    def kill_itself(message):
        gevent.getcurrent().kill()

    with pytest.raises(NsqClientError, match="was (cancelled|killed)"):
        if shell == "aio":
            run_in_new_loop(aio.Consumer(topic, "c", cancel_itself, nsqd_tcp_addresses=address).run())
        else:
            SHELLS[shell].consumer(topic, "c", kill_itself, nsqd_tcp_addresses=address).run()
    shared_nsqd.wait_for_channel(topic, "c", depth=1, in_flight_count=0, client_count=0)


class Broken(Log):
    """A log that fails in all threads but the test's."""

    def error(self, text: str, *args: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise OSError("the log is full")

    debug = info = warning = exception = error


@pytest.mark.parametrize("handler", [raises, None], ids=["handler", "loop"])
def test_an_error_in_the_io_thread_ends_the_consumer(topic, handler):
    consumer = SHELLS["threads"].consumer(topic, "c", handler, nsqd_tcp_addresses="127.0.0.1:1", log=Broken())
    with pytest.raises(OSError, match="the log is full"):
        if handler:
            consumer.run()
        else:
            list(consumer)


@pytest.mark.parametrize("error", [Unusual, SystemExit])
def test_an_on_done_that_raises_ends_nothing(address, topic, error):
    def on_done(_):
        raise error

    log = Log()
    with Producer(address, log=log) as producer:
        producer.publish_soon(topic, b"x", on_done)
        producer.flush()
        producer.publish(topic, b"x")
    assert len([line for line in log.lines if "on_done" in line]) == 1


def test_a_log_that_fails_for_a_handler_ends_the_consumer(shared_nsqd, address, topic):
    shared_nsqd.pub(topic, b"x")
    consumer = SHELLS["threads"].consumer(topic, "c", raises, nsqd_tcp_addresses=address, log=QuietBroken())
    with pytest.raises(OSError, match="the log is full"):
        consumer.run()
    shared_nsqd.wait_for_channel(topic, "c", in_flight_count=0, client_count=0)


class QuietBroken(Broken):
    """A log that fails to write errors only."""

    def info(self, text: str, *args: object) -> None:
        pass

    debug = info


def test_a_log_that_fails_ends_the_producer_with_its_error(topic):
    producer = Producer("127.0.0.1:1", log=Broken(), publish_timeout_s=20)
    with pytest.raises(NsqClientError, match="the log is full"):
        while True:
            producer.publish(topic, b"x")
    producer.close()


# ---- what the log says


@pytest.mark.parametrize("shell", SHELLS)
def test_failures_name_channel_and_attempt(consume, topic, shell):
    log = Log()

    def handle(message):
        if message.attempts == 1:
            raise ValueError("bad")
        if message.attempts == 2:
            raise Requeue(0, backoff=False)

    driver = consume(shell, handle, log=log)
    driver.wait(lambda: driver.stats().finished == 1)
    lines = [
        line.partition(" on message ")[2] or line.partition(" requeued message ")[2] for line in log.lines
    ]
    said = [line[line.index(" of ") :] for line in lines if line]
    assert said == [f" of {topic}/c, attempt 1: ValueError('bad')", f" of {topic}/c, attempt 2"]


def without() -> None:
    pass


def two(message: Any, more: Any) -> None:
    pass


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_handler_takes_one_argument(shell, role):
    consumer = CONSUMERS[shell]
    for handler in (without, two, lambda: None, functools.partial(two)):
        with pytest.raises(
            BadClientOption, match=rf"^{role} .* must take one argument, the (message|batch): "
        ):
            consumer("t", "c", nsqd_tcp_addresses="h:1", **{role: handler})
    for handler in (print, [].append, lambda *items: None, functools.partial(two, 1), raises):
        consumer("t", "c", nsqd_tcp_addresses="h:1", **{role: handler})


@pytest.mark.parametrize(
    "shell", [Producer, gevent_client.Producer, AioProducer], ids=["threads", "gevent", "aio"]
)
def test_an_idle_producer_of_a_dead_nsqd_logs_once(make_nsqd, topic, shell):
    log = Log()
    nsqd = make_nsqd()
    producer = shell(f"127.0.0.1:{nsqd.tcp_port}", log=log)
    producer.publish(topic, b"x")
    nsqd.kill()
    core = getattr(producer, "producer", producer)._core
    failures = [None]

    def has_failed_often():
        (writer,) = core.dispatcher.writers.values()
        if writer.failure is not failures[-1]:
            failures.append(writer.failure)
        return len(failures) > 4

    SHELLS["gevent"].wait(has_failed_often)
    assert len(log.lines) == 1
    producer.close()
