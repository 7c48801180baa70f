"""Handlers and callbacks that do not run, or end in an unusual way: no message is lost."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from nsqd_py.client import Producer, aio
from nsqd_py.client.errors import BadClientOption
from tests.support.consumer_drivers import SHELLS, Driver
from tests.support.nsqd_process import NsqdProcess

pytestmark = pytest.mark.ours

_NUMBERS = count()


@pytest.fixture
def topic() -> str:
    return f"faulty{next(_NUMBERS)}"


@pytest.fixture
def consume(shared_nsqd: NsqdProcess, topic: str) -> Iterator[Callable[..., Driver]]:
    """`consume(shell, handler, ...)` publishes a message, and starts a consumer without back-off."""
    drivers: list[Driver] = []

    def make(shell: str, handler: Any = None, **settings: Any) -> Driver:
        with shared_nsqd.connect() as client:
            client.mpub(topic, [b"x"])
        settings = {"default_requeue_delay": 0, "max_backoff_duration": 0, "max_attempts": 0} | settings
        address = f"127.0.0.1:{shared_nsqd.tcp_port}"
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


COROUTINES = [coroutine, functools.partial(functools.partial(coroutine), 1), Awaited(), Awaited().method,
              functools.partial(Awaited())]  # fmt: skip
GENERATORS = [generator, async_generator, Awaited().generate, functools.partial(generator)]


@pytest.mark.parametrize("role", ["handler", "batch_handler", "on_give_up"])
@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_known_not_to_run_is_refused(shell: str, role: str) -> None:
    refused = GENERATORS if shell == "aio" else GENERATORS + COROUTINES
    consumer = aio.Consumer if shell == "aio" else SHELLS[shell].consumer
    for handler in refused:
        with pytest.raises(BadClientOption, match=rf"^{role} \S+ is a (coroutine|generator) function.*(aio|yield)"):
            consumer("t", "c", nsqd_tcp_addresses="h:1", **{role: handler})


@pytest.mark.parametrize("role", ["handler", "batch_handler", "on_give_up"])
@pytest.mark.parametrize("inner", [coroutine, generator, async_generator])
@pytest.mark.parametrize("shell", SHELLS)
def test_a_result_that_did_not_run_fails_the_message(
    consume: Callable[..., Driver], shell: str, inner: Any, role: str
) -> None:
    if shell == "aio" and inner is coroutine:
        pytest.skip("is awaited")
    log = Log()
    settings: dict[str, Any] = {role: lambda item: inner(item), "log": log}
    if role == "on_give_up":
        settings |= {"handler": raises, "max_attempts": 1}
    driver = consume(shell, **settings)
    driver.wait(lambda: driver.stats().requeued >= 20)
    stats = driver.stats()
    assert (stats.finished, stats.given_up) == (0, 0)
    lines = [line for line in log.lines if "returned" in line]
    assert "<lambda> returned a" in lines[0]
    assert len(lines) < 20


def raises(message: Any) -> None:
    raise ValueError


@pytest.mark.parametrize("shell", SHELLS)
def test_a_message_whose_giving_up_fails_comes_again(
    consume: Callable[..., Driver], shell: str
) -> None:
    attempts: list[int] = []

    def give_up(message: Any) -> None:
        attempts.append(message.attempts)
        if len(attempts) < 3:
            raise ValueError

    driver = consume(shell, raises, max_attempts=1, on_give_up=give_up)
    driver.wait(lambda: driver.stats().finished == 1)
    assert (attempts, driver.stats().given_up) == ([2, 3, 4], 1)


@pytest.mark.parametrize("role", ["handler", "on_give_up", "batch_handler"])
def test_aio_awaits_what_a_plain_function_returns(
    consume: Callable[..., Driver], role: str
) -> None:
    ran: list[int] = []

    async def work(item: Any) -> None:
        ran.append(1)
        if role == "batch_handler":
            item.finish()

    driver = consume("aio", **{"handler": None if role == "batch_handler" else raises, "max_attempts": 1,
                               role: lambda item: work(item)})  # fmt: skip
    driver.wait(lambda: driver.stats().finished == 1)
    assert ran == [1]


def test_an_on_done_that_is_not_awaited_is_logged(shared_nsqd: NsqdProcess, topic: str) -> None:
    log = Log()
    with Producer(f"127.0.0.1:{shared_nsqd.tcp_port}", log=log) as producer:
        producer.publish_soon(topic, b"x", coroutine)
    assert ["coroutine returned an awaitable" in line for line in log.lines] == [True]
