"""Middleware that has no method for a kind of functions is refused where such a function is declared."""

from __future__ import annotations

from typing import Any

import pytest

from nsqd_py.client.errors import BadClientOption
from nsqd_py.work import App, BadHandler
from nsqd_py.work.testing import Harness, run
from nsqd_py.work.timed.occurrences import BadSchedule

NAME = f"{__name__}.{{}}"


class Plain:
    def around(self, message: Any, call: Any) -> None:
        call()


class Async:
    async def around_async(self, message: Any, call: Any) -> None:
        await call()


class Mistaken:
    async def around(self, message: Any, call: Any) -> None:
        await call()


def plain(order: dict) -> None:
    """Do nothing."""


async def of_asyncio(order: dict) -> None:
    """Do nothing."""


def plain_job() -> None:
    """Do nothing."""


async def job_of_asyncio() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("middleware", "function", "missing"),
    [(Plain(), of_asyncio, "around_async"), (Async(), plain, "around")],
    ids=["plain", "async"],
)
def test_a_handler_of_the_other_kind_is_refused(middleware, function, missing) -> None:
    app = App(middleware=[middleware])
    with pytest.raises(BadHandler) as refused:
        app.handler("orders")(function)
    text = str(refused.value)
    assert f"handler {NAME.format(function.__name__)} of topic orders: " in text
    assert f"{NAME.format(type(middleware).__name__)} has no {missing}: " in text
    assert app.handlers == []


def test_a_handler_of_its_kind_is_called() -> None:
    app = App(middleware=[Plain()])
    app.handler("orders")(plain)
    with Harness(app) as harness:
        app.publish("orders", {})
        assert [str(result.outcome) for result in harness.run()] == ["Finished(error=None)"]


@pytest.mark.parametrize(
    ("middleware", "function", "missing"),
    [(Plain(), job_of_asyncio, "around_async"), (Async(), plain_job, "around")],
    ids=["plain", "async"],
)
def test_a_schedule_of_the_other_kind_is_refused(middleware, function, missing) -> None:
    app = App(middleware=[middleware])
    with pytest.raises(BadSchedule, match=f"{function.__name__}: .*has no {missing}: "):
        app.every(hours=1)(function)
    assert app.schedules == {}


def test_one_coroutine_function_makes_all_jobs_those_of_an_event_loop() -> None:
    app = App(middleware=[Async()])
    app.every(hours=1)(job_of_asyncio)
    app.every(hours=1)(plain_job)
    (jobs,) = app.internal_handlers(has_schedules=False)
    assert jobs.is_async
    assert app.middleware_of(jobs) == app.middleware


def test_no_middleware_runs_around_what_forwards_long_delays() -> None:
    app = App(nsqd_tcp_addresses="127.0.0.1:1", middleware=[Async()])
    watcher = Plain()
    vars(app)["watchers"] = (watcher,)
    with Harness(app):
        (later,) = app.internal_handlers(has_schedules=True)
    assert app.middleware_of(later) == (watcher,)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (Plain, "Plain is a class: give an object of it, as in Plain()"),
        (object(), "has neither around nor around_async"),
        (Mistaken(), "Mistaken is a coroutine function, which plain functions do not await"),
    ],
    ids=["class", "other", "coroutine function"],
)
def test_what_is_no_middleware_is_refused(given, reason) -> None:
    with pytest.raises(BadClientOption) as refused:
        App(middleware=[given])
    assert reason in str(refused.value)


def test_so_is_it_where_a_test_calls_a_handler() -> None:
    app = App()
    app.handler("orders")(of_asyncio)
    with pytest.raises(BadHandler, match="has no around_async"):
        run(of_asyncio, {}, middleware=[Plain()])
