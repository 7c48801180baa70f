"""The harness has the same delays, schedules and refusals as a worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nsqd_py.client.errors import WrongPlace
from nsqd_py.protocol.outgoing import BadName
from nsqd_py.work import App, Requeue, Retry
from nsqd_py.work.outcomes import DeadLetter, Finished, RequeueAfter
from nsqd_py.work.testing import Clock, Harness

DAY_S = 86400.0
NEVER_AGAIN = Retry(attempts=1)


def noted(app: App) -> list[Any]:
    """Declare a handler that notes its values and their times."""
    notes: list[Any] = []

    @app.handler("orders")
    def note(order: dict) -> None:
        notes.append((order["id"], app.clock()))

    return notes


@pytest.mark.parametrize("defer_s", [3600, 3601, 7200, 30 * DAY_S])
def test_a_delay_of_any_length_arrives_at_its_time(defer_s: float) -> None:
    app = App(name="shop")
    notes = noted(app)
    with Harness(app, clock=Clock(1000)) as harness:
        app.publish("orders", {"id": 1}, defer_s=defer_s)
        assert harness.run(for_s=defer_s - 1) == []
        assert harness.waiting_count == 1
        assert [result.handler.topic for result in harness.run(for_s=2)] == ["orders"]
        assert harness.waiting_count == 0
    assert notes == [(1, pytest.approx(1000 + defer_s, abs=0.01))]


def test_schedules_run_at_their_times_between_messages() -> None:
    app = App(name="shop")
    notes = noted(app)

    @app.every(minutes=5)
    def tick() -> None:
        notes.append(("tick", app.clock()))

    with Harness(app, clock=Clock(600)) as harness:
        app.publish("orders", {"id": 1}, defer_s=400)
        assert harness.run() == []
        results = harness.run(for_s=600)
        assert harness.waiting_count == 0
    assert notes == [("tick", 900), (1, 1000), ("tick", 1200)]
    assert [result.handler.topic for result in results] == ["shop.due", "orders", "shop.due"]


def test_a_coroutine_function_may_be_a_job_and_is_tried_again() -> None:
    app = App(name="shop")
    times: list[float] = []

    @app.every(hours=1)
    async def sweep() -> None:
        times.append(app.clock())
        if len(times) == 1:
            raise Requeue(delay_s=10)
        await asyncio.sleep(1)

    with Harness(app, clock=Clock(3000)) as harness:
        outcomes = [result.outcome for result in harness.run(for_s=3600)]
    assert outcomes == [RequeueAfter(10.0), Finished()]
    assert times == [3600, 3610]


def test_missed_occurrences_are_made_up_for_once() -> None:
    app = App(name="shop")
    times: list[float] = []
    with Harness(app, clock=Clock(0)) as harness:

        @app.every(minutes=1)
        def tick() -> None:
            times.append(app.clock())

        harness.run(for_s=60)
        harness.clock.advance(600)
        harness.run(for_s=60)
    assert times == [60, 660, 720]


def test_a_job_that_fails_for_good_is_a_dead_letter() -> None:
    app = App(name="shop")

    @app.every(hours=1)
    def fail() -> None:
        raise RuntimeError("no")

    with Harness(app, clock=Clock(0)) as harness:
        harness.run(for_s=7000)
        ((body, headers),) = harness.dead_letters("shop.due")
    assert (body, headers["error"]) == (b"", "RuntimeError: no")


def test_a_publish_that_waits_is_refused_in_a_coroutine_function() -> None:
    app = App(name="shop")

    @app.handler("orders", retry=NEVER_AGAIN)
    async def copy(order: dict) -> None:
        app.publish("copies", order)

    with Harness(app) as harness:
        app.publish("orders", {})
        (result,) = harness.run()
        assert harness.published("copies") == []
    assert isinstance(result.outcome, DeadLetter)
    assert isinstance(result.outcome.error, WrongPlace)


def test_a_test_in_an_event_loop_may_publish() -> None:
    app = App(name="shop")

    @app.handler("orders")
    def copy(order: dict) -> None:
        app.publish("copies", order)

    async def check() -> list[bytes]:
        with Harness(app) as harness:
            app.publish("orders", {"id": 1})
            harness.run()
            return harness.published("copies")

    assert asyncio.run(check()) == [b'{"id":1}']


@pytest.mark.parametrize(
    ("topic", "body", "error"),
    [("bad topic!", b"x", BadName), ("orders", b"", ValueError), ("orders", "", ValueError)],
)
def test_what_no_producer_publishes_is_refused(topic: str, body: Any, error: type[Exception]) -> None:
    app = App(name="shop")
    noted(app)
    with Harness(app) as harness:
        with pytest.raises(error):
            app.publish(topic, body)
        with pytest.raises(error):
            asyncio.run(app.publish_async(topic, body))
        assert harness.waiting_count == 0
