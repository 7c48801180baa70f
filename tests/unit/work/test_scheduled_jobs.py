"""The handlers of jobs and of long delays, without a server."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from nsqd_py.client import Requeue
from nsqd_py.client.errors import BadClientOption, PublishFailed
from nsqd_py.protocol.envelope import unwrap
from nsqd_py.protocol.outgoing import BadName
from nsqd_py.work import App, Drop, Headers
from nsqd_py.work.timed.jobs import Jobs
from nsqd_py.work.timed.later import Later, chained, refusal
from nsqd_py.work.timed.tokens import FOREIGN_S, MOST_ATTEMPTS

NOW_S = 1_000_000.0
MAIN_THREAD = threading.get_ident()


@pytest.fixture
def app() -> App:
    return App("shop", nsqd_tcp_addresses="127.0.0.1:4150")


def jobs_of(app: App) -> Jobs:
    return Jobs(app.schedules, clock=lambda: NOW_S)


def headers(name: str, late_s: float = 0) -> Headers:
    return Headers(schedule=name, due=str(int(NOW_S - late_s)))


def test_a_job_calls_the_function_of_its_schedule(app: App) -> None:
    called = []

    @app.every(seconds=1)
    def clean() -> None:
        called.append(1)

    handler = jobs_of(app).handler("shop", 3600)
    assert (handler.topic, handler.channel, handler.is_async) == ("shop.due", "shop", False)
    (name,) = app.schedules
    handler.function(headers(name))
    assert called == [1]


def test_with_a_coroutine_function_all_run_on_the_loop_and_plain_ones_in_threads(app: App) -> None:
    called = []

    @app.every(seconds=1)
    async def clean() -> None:
        called.append(threading.get_ident() == MAIN_THREAD)

    @app.every(seconds=1)
    def plain() -> None:
        called.append(threading.get_ident() == MAIN_THREAD)

    handler = jobs_of(app).handler("shop", 3600)
    assert handler.is_async
    for name in app.schedules:
        asyncio.run(handler.function(headers(name)))
    assert called == [True, False]


def test_a_job_of_another_version_comes_again_and_is_dropped_at_last(app: App) -> None:
    jobs = jobs_of(app)
    with pytest.raises(Requeue):
        jobs.run(headers("shop.new", late_s=FOREIGN_S - 1))
    with pytest.raises(Drop, match="no process has had the schedule 'shop.new' for 3601 s"):
        jobs.run(headers("shop.new", late_s=FOREIGN_S + 1))
    with pytest.raises(Drop):
        jobs.run(Headers())


# ---- long delays


class Published(list[tuple[str, bytes]]):
    def publish(self, topic: str, body: bytes) -> None:
        self.append((topic, body))


def later_of(published: Published) -> Any:
    return Later(published, 100.0, clock=lambda: NOW_S).handler("shop").function


def waiting(attempts: int = 1) -> Any:
    return SimpleNamespace(topic="shop.later", attempts=attempts)


def test_a_message_is_in_an_envelope_until_it_is_due() -> None:
    topic, data = chained("shop", "orders", b"body", NOW_S + 5.25)
    assert topic == "shop.later"
    assert unwrap(data) == (b"body", {"due": "1000005.250", "topic": "orders"})
    with pytest.raises(BadName):
        chained("shop", "no topic", b"body", NOW_S)


@pytest.mark.parametrize(("wait_s", "delay_s"), [(5.25, 5.25), (100, 100), (5000, 100), (0.0004, 0.001)])
def test_it_is_requeued_for_as_long_as_nsqd_allows(wait_s: float, delay_s: float) -> None:
    published = Published()
    with pytest.raises(Requeue) as raised:
        later_of(published)(b"body", Headers(due=str(NOW_S + wait_s), topic="orders"), waiting())
    assert raised.value.delay_s == pytest.approx(delay_s)
    assert not raised.value.backoff
    assert published == []


def test_it_is_published_when_it_is_due() -> None:
    published = Published()
    later_of(published)(b"body", Headers(due=str(NOW_S), topic="orders"), waiting())
    assert published == [("orders", b"body")]


def test_it_is_published_to_wait_again_before_it_has_too_many_attempts() -> None:
    published = Published()
    of = Headers(due=str(NOW_S + 5000), topic="orders")
    later_of(published)(b"body", of, waiting(MOST_ATTEMPTS))
    [(topic, data)] = published
    assert topic == "shop.later"
    assert unwrap(data) == (b"body", of)


def test_only_a_refused_delay_gets_the_remedy() -> None:
    refused = PublishFailed("127.0.0.1:4150", "E_INVALID", "DPUB timeout 5000 out of range 0-1000")
    assert isinstance(refusal(refused, 5), BadClientOption)
    assert refusal(refused, 0) is refused
    other = PublishFailed("127.0.0.1:4150", "E_BAD_TOPIC", "")
    assert refusal(other, 5) is other


@pytest.mark.parametrize("defer_s", [float("nan"), float("inf"), 10**12, timedelta.max, "5", None])
def test_what_is_no_delay_is_refused(app: App, defer_s: Any) -> None:
    with pytest.raises(BadClientOption, match=r"defer_s=\S+ is no delay: give a number of seconds"):
        app.publish("orders", b"", defer_s=defer_s)
