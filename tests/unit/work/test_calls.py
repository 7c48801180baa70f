"""The calls of a handler, without a server."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from nsqd_py.client.errors import PublishFailed
from nsqd_py.protocol.envelope import unwrap, wrap
from nsqd_py.work import (
    App,
    Batch,
    BatchFailed,
    Drop,
    Headers,
    Message,
    Middleware,
    Requeue,
    Retry,
    TimeLimitExceeded,
    Undecodable,
)
from nsqd_py.work.calling import Calls
from nsqd_py.work.middleware import Call, DjangoConnections, OnError, OpenTelemetry, Prometheus
from nsqd_py.work.outcomes import DeadLetter, Dropped, Finished, RequeueAfter
from nsqd_py.work.pacing import Pace, TimeLimits
from nsqd_py.work.testing import Clock, Harness, _Delivery, _Letters, _Waiting, run
from tests.support.aio_client import run_in_new_loop

RETRY = Retry(attempts=3, first_s=10, factor=2, jitter=0)
ERROR = RuntimeError("the bank is closed")


def make(app: App, is_async: bool, work: Any, topic: str = "orders", **settings: Any) -> Any:
    """Declare a handler that does this work: a plain function, or a coroutine function."""

    def plain(order: dict, message: Message) -> None:
        work(order, message)

    async def of_asyncio(order: dict, message: Message) -> None:
        work(order, message)

    return app.handler(topic, retry=RETRY, **settings)(of_asyncio if is_async else plain)


both = pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])


@both
def test_a_handler_that_returns_has_finished(is_async) -> None:
    got = []
    handler = make(App(), is_async, lambda order, message: got.append((order, message.attempts)))
    assert run(handler, {"id": 1}, attempts=2) == Finished()
    assert got == [({"id": 1}, 2)]


@both
def test_a_handler_that_raises_is_tried_again_until_it_is_dead(is_async, caplog) -> None:
    def fail(order: dict, message: Message) -> None:
        raise ERROR

    handler = make(App(), is_async, fail)
    assert run(handler, {}, attempts=2) == RequeueAfter(20, ERROR)
    assert (
        "failed on message 0000000000000001 of orders, attempt 2: RuntimeError: the bank is closed"
        in caplog.text
    )
    assert any(
        record.exc_info for record in caplog.records
    )  # "Traceback": not if PySpark has set the formatter
    assert run(handler, {}, attempts=3) == DeadLetter(ERROR)


@both
@pytest.mark.parametrize("body", [b"{", b"\xff", b"[]", wrap(b"no JSON", {"due": "1"})])
def test_a_body_that_cannot_be_decoded_is_dead_at_once(is_async, body) -> None:
    handler = make(App(), is_async, lambda order, message: pytest.fail("it is called"))
    outcome = run(handler, body)
    assert isinstance(outcome, DeadLetter)
    assert isinstance(outcome.error, Undecodable)
    assert handler.__qualname__ in str(outcome.error)


@both
def test_a_handler_may_decide_itself(is_async) -> None:
    def decide(order: dict, message: Message) -> None:
        raise {"drop": Drop("late"), "again": Requeue(7), "far": Requeue(9999)}[order["way"]]

    handler = make(App(), is_async, decide)
    assert run(handler, {"way": "drop"}) == Dropped("late")
    assert run(handler, {"way": "again"}, attempts=2) == RequeueAfter(7)


@both
def test_a_requeue_that_is_not_possible_is_a_failure(is_async, caplog) -> None:
    def decide(order: dict, message: Message) -> None:
        raise Requeue(order["delay_s"])

    handler = make(App(), is_async, decide)
    far: Any = run(handler, {"delay_s": 7200})
    assert far.delay_s == 3600  # longest_defer_s: nsqd takes no longer delay
    assert "Requeue(delay_s=7200) is longer than the longest_defer_s" in str(far.error)
    assert "Publish it with App.publish" in caplog.text
    last: Any = run(handler, {"delay_s": 7}, attempts=3)
    assert isinstance(last, DeadLetter)
    assert "each Requeue counts as an attempt. Give the handler Retry" in str(last.error)
    assert "Traceback" not in caplog.text


@both
def test_a_handler_may_answer_itself(is_async) -> None:
    def answer(order: dict, message: Message) -> None:
        message.requeue(5)
        if order["fails"]:
            raise ERROR

    handler = make(App(), is_async, answer)
    assert run(handler, {"fails": False}) == RequeueAfter(5)
    outcome = run(handler, {"fails": True})
    assert isinstance(outcome, RequeueAfter)
    assert outcome.delay_s == 5


@both
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_of_a_handler_is_raised_after_the_answer(is_async, error, caplog) -> None:
    def leave(order: dict, message: Message) -> None:
        raise error

    handler = make(App(), is_async, leave)
    with pytest.raises(error):
        run(handler, {})
    assert f"attempt 1: {error.__name__}" in caplog.text


def test_a_plain_function_over_its_time_limit_has_failed() -> None:
    clock = Clock()

    def work(order: dict, message: Message) -> None:
        clock.advance(order["takes_s"])
        if order["takes_s"] == 9:
            raise ERROR

    handler = make(App(), False, work, time_limit_s=5)
    assert run(handler, {"takes_s": 4}, clock=clock) == Finished()
    for takes_s in (6, 9):  # what it returns or raises then is of no interest
        outcome: Any = run(handler, {"takes_s": takes_s}, clock=clock)
        assert isinstance(outcome.error, TimeLimitExceeded)
        assert outcome.delay_s == 10


def test_a_coroutine_over_its_time_limit_is_cancelled() -> None:
    ends = []
    app = App()

    @app.handler("orders", time_limit_s=5, retry=RETRY)
    async def work(order: dict) -> None:
        try:
            await asyncio.sleep(order["takes_s"])
        finally:
            ends.append(asyncio.get_running_loop().time())

    clock = Clock(100)
    assert run(work, {"takes_s": 4}, clock=clock) == Finished()
    outcome: Any = run(work, {"takes_s": 60}, clock=clock)
    assert isinstance(outcome.error, TimeLimitExceeded)
    assert ends == [104, 109]


def test_a_timeout_of_the_handler_itself_is_no_time_limit() -> None:
    app = App()

    @app.handler("orders", time_limit_s=5)
    async def work(order: dict) -> None:
        raise TimeoutError("of a database")

    outcome: Any = run(work, {})
    assert type(outcome.error) is TimeoutError


def test_a_coroutine_that_raises_cancelled_error_has_failed() -> None:
    app = App()

    @app.handler("orders")
    async def work(order: dict) -> None:
        raise asyncio.CancelledError

    assert isinstance(run(work, {}), RequeueAfter)


@both
def test_a_message_that_comes_too_often_is_dead_without_a_call(is_async, caplog) -> None:
    """Its last attempts ended without an answer: perhaps the handler ends its process."""
    handler = make(App(), is_async, lambda order, message: pytest.fail("it is called"))
    outcome: Any = run(handler, {}, attempts=7)
    assert isinstance(outcome, DeadLetter)
    assert (
        "attempt 7, after the last one that is allowed, 3: its last attempts ended without an answer"
        in str(outcome.error)
    )
    assert "gives up message 0000000000000001 of orders without a call" in caplog.text
    assert "Traceback" not in caplog.text


@both
def test_a_message_that_was_given_back_before_its_call_is_called(is_async) -> None:
    handler = make(App(), is_async, lambda order, message: None)
    assert run(handler, {}, attempts=6) == Finished()


@both
def test_of_a_batch_only_those_that_came_too_often_are_given_up(is_async) -> None:
    app = App()
    got = []

    def work(orders: list[int]) -> None:
        got.append(orders)
        if len(got) == 1:
            raise Requeue(0)

    async def of_asyncio(orders: list[int]) -> None:
        work(orders)

    app.handler("orders", batch=Batch(5), retry=Retry(attempts=2))(of_asyncio if is_async else work)
    handler = app.handlers[0]
    with Harness(app) as harness:
        arrived = [
            _Waiting(0, number, handler, b"%d" % number, attempts) for number, attempts in ((1, 6), (2, 1))
        ]
        outcomes = [result.outcome for result in harness._caller.call(handler, arrived)]
    assert got == [[2]]
    assert [type(outcome) for outcome in outcomes] == [DeadLetter, RequeueAfter]


@pytest.mark.parametrize("is_seen", [False, True], ids=["later", "seen"])
def test_a_coroutine_that_cancels_its_task_has_failed(is_seen) -> None:
    app = App()

    @app.handler("orders", retry=RETRY)
    async def work(order: dict) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if is_seen:
            await asyncio.sleep(1)

    assert isinstance(run(work, {}), RequeueAfter)
    assert isinstance(run(work, {}, attempts=3), DeadLetter)


def test_a_coroutine_that_a_stop_cancels_has_not_failed() -> None:
    app = App()
    began = asyncio.Event()

    @app.handler("orders", retry=Retry(attempts=1))
    async def work(order: dict) -> None:
        began.set()
        await asyncio.sleep(60)

    async def stop() -> Any:
        delivery: Any = _Delivery("orders", "work")
        calls = Calls(app.handlers[0], store=_Letters(), log=app.log, limits=TimeLimits())
        task = asyncio.create_task(calls.handle_async(Message(b"1" * 16, b"{}", 0, 1, delivery)))
        await began.wait()
        calls.begin_to_stop()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return delivery.answer

    assert asyncio.run(stop()) is None


class Expiring(_Delivery):
    """A delivery that nsqd times out, or whose connection is lost, when the test says so."""

    def __init__(self, *, is_open: bool = True) -> None:
        super().__init__("orders", "work")
        self.connection = SimpleNamespace(is_open=is_open)

    def finish_if_open(self, message_id: bytes) -> bool:
        pytest.fail("it is finished")


def call_with(app: App, delivery: Any, pace: Any = None) -> Message:
    """Call the handler of the app with one message, as its consumer does."""
    calls = Calls(app.handlers[0], store=_Letters(), log=app.log, limits=TimeLimits(), pace=pace)
    message = Message(b"1" * 16, b"{}", 0, 1, delivery)
    if app.handlers[0].is_async:
        asyncio.run(calls.handle_async(message))
    else:
        calls.handle(message)
    return message


@both
def test_a_message_that_timed_out_while_it_waited_for_its_turn_is_not_called(is_async) -> None:
    delivery = Expiring()

    class Slow(Pace):
        def wait(self) -> bool:
            delivery.is_live = False
            return True

        async def wait_async(self) -> bool:
            return self.wait()

    app = App()
    make(app, is_async, lambda order, message: pytest.fail("it is called"))
    message = call_with(app, delivery, Slow(1))
    message.settle()  # as the consumer does: nsqd may have delivered it again over this connection
    assert delivery.answer is None


@both
@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
@pytest.mark.parametrize(
    ("is_open", "text"),
    [
        (True, "Raise nsqd's --max-msg-timeout"),
        (False, "the connection of message 1111111111111111 of orders was lost"),
    ],
)
def test_an_end_that_comes_too_late_is_logged(is_async, fails, is_open, text, caplog) -> None:
    delivery = Expiring(is_open=is_open)

    def work(order: dict, message: Message) -> None:
        delivery.is_live = False
        if fails:
            raise ERROR

    app = App()
    make(app, is_async, work)
    call_with(app, delivery)
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert text in warning.getMessage()
    assert delivery.answer is None


def test_a_function_that_returns_a_coroutine_has_failed() -> None:
    async def work() -> None: ...

    app = App()

    @app.handler("orders")
    def call(order: dict) -> Any:
        return work()

    outcome: Any = run(call, {})
    assert "returned an awaitable" in str(outcome.error)


def test_headers_and_the_body_come_out_of_the_envelope() -> None:
    app = App()
    got = []

    @app.handler("orders")
    def work(order: dict, message: Message, headers: Headers) -> None:
        got.append((order, message.body, headers))

    assert run(work, {"id": 1}, headers={"due": "7"}) == Finished()
    assert run(work, {"id": 2}) == Finished()
    assert got == [({"id": 1}, b'{"id":1}', {"due": "7"}), ({"id": 2}, b'{"id":2}', {})]


# ---- batches


@both
def test_the_failed_ones_of_a_batch_come_again(is_async) -> None:
    app = App()
    got = []

    def work(orders: list[int]) -> None:
        got.append(orders)
        raise BatchFailed({0: ERROR, 2: Drop("late")})

    async def of_asyncio(orders: list[int]) -> None:
        work(orders)

    app.handler("orders", batch=Batch(5), retry=RETRY)(of_asyncio if is_async else work)
    with Harness(app) as harness:
        for body in (1, b"no JSON", 2, 3, 4, 5):
            app.publish("orders", body)
        results = harness.run()
    assert got == [[1, 2, 3, 4], [5]]
    outcomes: list[Any] = [result.outcome for result in results]
    assert outcomes[0] == RequeueAfter(10, ERROR)
    assert isinstance(outcomes[1].error, Undecodable)
    assert outcomes[2:5] == [Finished(), Dropped("late"), Finished()]
    assert isinstance(outcomes[5].error, IndexError)  # it has no value 2
    assert harness.dead_letters("orders")[0][0] == b"no JSON"


@both
def test_all_of_a_batch_fail_with_one_error_that_is_logged_once(is_async, caplog) -> None:
    app = App()

    def work(orders: list[int]) -> None:
        raise ERROR

    async def of_asyncio(orders: list[int]) -> None:
        raise ERROR

    app.handler("orders", batch=Batch(5), retry=RETRY)(of_asyncio if is_async else work)
    with Harness(app) as harness:
        for number in range(3):
            app.publish("orders", number)
        app.publish("orders", b"no JSON")
        outcomes: list[Any] = [result.outcome for result in harness.run()]
    assert outcomes[:3] == [RequeueAfter(10, ERROR)] * 3
    assert isinstance(outcomes[3].error, Undecodable)
    assert len([record for record in caplog.records if record.exc_info]) == 1


# ---- dead letters


def test_a_dead_letter_has_its_error_and_the_original_body() -> None:
    app = App()

    @app.handler("orders", channel="billing", retry=RETRY)
    def work(order: bytes) -> None:
        raise ValueError("höh\nline")

    with Harness(app, clock=Clock(1000)) as harness:
        app.publish("orders", wrap(b"\x89body", {"traceparent": "00-1-2-03", "id": "of the first"}))
        app.publish("orders", b"plain")
        harness.run(for_s=100)
    (body, headers), (plain, its_headers) = harness.dead_letters("orders")
    assert (body, plain) == (b"\x89body", b"plain")
    assert headers == {
        "traceparent": "00-1-2-03",
        "error": "ValueError: h\\xf6h line",
        "handler": f"{__name__}.test_a_dead_letter_has_its_error_and_the_original_body.<locals>.work",
        "topic": "orders",
        "channel": "billing",
        "id": "of the first",
        "attempts": "3",
        "died": "1030000000000",
    }
    assert its_headers["id"] == "0000000000000002"


class _Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@both
@pytest.mark.parametrize(
    ("error", "written"),
    [
        (ValueError("\x1b[31mred\x1b[0m\x00\x7f"), "ValueError: \\x1b[31mred\\x1b[0m\\x00\\x7f"),
        (ValueError("\ud800\x9b"), "ValueError: \\ud800\\x9b"),
        (_Speechless(), "_Speechless: <exception str() failed>"),
        (ValueError("\x1b" * 3_000_000), "ValueError: " + "\\x1b" * 497),
    ],
    ids=["colours", "surrogate", "no text", "long"],
)
def test_a_message_becomes_a_dead_letter_whatever_the_text_of_its_error_is(
    is_async, error, written, caplog
) -> None:
    """Or it came again for ever, and each time the consumer backed off from all messages."""
    caplog.set_level(logging.CRITICAL, "nsqd_py.work")  # pytest-xdist cannot pass such text on
    app = App()

    def fail(order: dict, message: Message) -> None:
        raise error

    make(app, is_async, fail)
    with Harness(app) as harness:
        app.publish("orders", {})
        harness.run(for_s=100)
    ((_, headers),) = harness.dead_letters("orders")
    assert headers["error"] == written


def test_a_dead_letter_that_is_published_again_is_handled() -> None:
    app = App()
    got = []

    @app.handler("orders", retry=Retry(attempts=1))
    def work(order: dict) -> None:
        got.append(order)
        if len(got) == 1:
            raise ERROR

    with Harness(app) as harness:
        app.publish("orders", {"id": 1})
        harness.run()
        (letter,) = harness.published("orders.dead")
        app.publish("orders", letter)
        harness.run()
    assert got == [{"id": 1}] * 2
    assert harness.waiting_count == 0


def test_a_handler_of_dead_letters_has_none_of_its_own() -> None:
    app = App()

    @app.handler("orders.dead", retry=Retry(attempts=1, most_s=60))
    def work(order: dict) -> None:
        raise ERROR

    with Harness(app) as harness:
        app.publish("orders.dead", {})
        harness.run()
        assert harness.published("orders.dead") == [b"{}"]
        assert harness.waiting_count == 1


def test_an_error_that_is_too_long_is_cut() -> None:
    app = App()

    @app.handler("orders", retry=Retry(attempts=1))
    def work(order: bytes) -> None:
        raise ValueError("x" * 100_000)

    with Harness(app) as harness:
        app.publish("orders", wrap(b"body", {"large": "x" * 65_000}))
        harness.run()
    ((body, headers),) = harness.dead_letters("orders")
    assert body == b"body"
    assert len(headers["error"]) == 2000
    assert "large" not in headers  # together they would be larger than an envelope


def test_a_message_whose_dead_letter_is_not_stored_comes_again(caplog) -> None:
    app = App()

    @app.handler("orders", retry=RETRY)
    def work(order: bytes) -> None:
        raise ERROR

    class Full(Harness):
        is_full = True

        def publish_soon(self, topic: str, body: bytes, on_done: Any = None, *, defer_s: Any = 0) -> Any:
            if self.is_full:
                on_done(OSError("no space"))
            else:
                return super().publish_soon(topic, body, on_done)

    with Full(app) as harness:
        app.publish("orders", b"1")
        harness.run(for_s=1000)
        assert harness.waiting_count == 1
        assert "comes again: no dead letter was stored in orders.dead: no space" in caplog.text
        harness.is_full = False
        harness.run(for_s=1000)
        assert harness.waiting_count == 0
        assert len(harness.dead_letters("orders")) == 1


@pytest.mark.parametrize(
    ("room", "headers"), [(2000, {"error", "id"}), (60, {"large"})], ids=["for short headers", "for the body"]
)
def test_a_dead_letter_that_nsqd_finds_too_large_has_shorter_headers(room, headers, caplog) -> None:
    app = App()
    body = wrap(b"body", {"large": "x"})

    @app.handler("orders", retry=Retry(attempts=1))
    def work(order: bytes) -> None:
        raise ValueError("x" * 10_000)

    class Small(Harness):
        def publish_soon(self, topic: str, body: bytes, on_done: Any = None, *, defer_s: Any = 0) -> Any:
            if len(body) > room:
                on_done(PublishFailed("127.0.0.1:4150", "E_BAD_MESSAGE", "PUB message too big"))
                return None
            return super().publish_soon(topic, body, on_done)

    with Small(app) as harness:
        app.publish("orders", body)
        harness.run(for_s=1000)
    assert harness.waiting_count == 0
    ((original, kept),) = harness.dead_letters("orders")
    assert original == b"body"
    assert set(kept) == headers
    assert "raise nsqd's --max-msg-size" in caplog.text


# ---- middleware


class Notes(Middleware):
    def __init__(self, name: str, notes: list[Any]) -> None:
        self.name = name
        self.notes = notes

    def around(self, message: Message, call: Call) -> None:
        self.notes.append((self.name, call.handler.topic, message.body))
        call()
        self.notes.append(self.name)

    async def around_async(self, message: Message, call: Call) -> None:
        self.notes.append((self.name, call.handler.topic, message.body))
        await call()
        self.notes.append(self.name)


@both
def test_middleware_runs_around_a_call(is_async) -> None:
    notes: list[Any] = []
    app = App(middleware=[Notes("outer", notes), Notes("inner", notes)])
    make(app, is_async, lambda order, message: notes.append(order))
    with Harness(app) as harness:
        app.publish("orders", {})
        harness.run()
    assert notes == [("outer", "orders", b"{}"), ("inner", "orders", b"{}"), {}, "inner", "outer"]


@both
def test_errors_are_reported_and_requests_are_not(is_async) -> None:
    errors: list[Any] = []

    def work(order: dict, message: Message) -> None:
        raise {"error": ERROR, "drop": Drop("late"), "again": Requeue(9)}[order["way"]]

    middleware = [OnError(lambda error, call: errors.append((error, call.messages[0].attempts)))]
    handler = make(App(), is_async, work)
    for body in ({"way": "error"}, {"way": "drop"}, {"way": "again"}, b"no JSON"):
        run(handler, body, middleware=middleware)
    assert errors[0] == (ERROR, 1)
    assert [type(error) for error, _ in errors] == [RuntimeError, Undecodable]


@both
def test_a_message_that_is_given_up_without_a_call_is_reported(is_async, caplog) -> None:
    errors: list[Any] = []

    def report(error: BaseException, call: Call) -> None:
        errors.append((error, call.handler.topic, call.messages[0].attempts))
        raise ERROR

    handler = make(App(), is_async, lambda order, message: pytest.fail("it is called"))
    attempts = 7
    outcome = run(handler, {}, attempts=attempts, middleware=[OnError(report)])
    assert isinstance(outcome, DeadLetter)
    assert errors == [(outcome.error, "orders", attempts)]
    assert "the middleware OnError has failed: RuntimeError: the bank is closed" in caplog.text


@both
def test_a_requeue_that_is_a_failure_is_reported(is_async) -> None:
    errors: list[Any] = []

    def ask(order: dict, message: Message) -> None:
        raise Requeue(7)

    handler = make(App(), is_async, ask)
    reports = [OnError(lambda error, call: errors.append(error))]
    outcome = run(handler, {}, attempts=3, middleware=reports)
    assert isinstance(outcome, DeadLetter)
    assert errors == [outcome.error]


def test_a_thread_over_its_time_limit_is_reported() -> None:
    errors: list[Any] = []
    clock = Clock()
    handler = make(App(), False, lambda order, message: clock.advance(6), time_limit_s=5)
    run(handler, {}, clock=clock, middleware=[OnError(lambda error, call: errors.append(error))])
    assert [type(error) for error in errors] == [TimeLimitExceeded]


@both
def test_prometheus_counts_calls(is_async) -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    registry = prometheus_client.CollectorRegistry()

    def work(order: dict, message: Message) -> None:
        if "way" in order:
            raise {"error": ERROR, "drop": Drop("late"), "again": Requeue(9)}[order["way"]]

    handler = make(App(), is_async, work)
    middleware = [Prometheus(registry)]
    for body in ({}, {"way": "error"}, {"way": "drop"}, {"way": "again"}, {}):
        run(handler, body, middleware=middleware)
    counts = {
        sample.labels["outcome"]: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "nsq_work_call_seconds_count"
    }
    assert counts == {"returned": 2, "failed": 1, "dropped": 1, "requeued": 1}


@both
def test_a_call_has_a_span_for_each_message(is_async) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from nsqd_py.otel import Instrumentation

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    middleware = [OpenTelemetry(Instrumentation(tracer_provider=provider))]
    got: list[Any] = []
    handler = make(App(), is_async, lambda order, message: got.append(order))
    publisher = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert run(handler, {"id": 1}, headers={"traceparent": publisher}, middleware=middleware) == Finished()
    assert isinstance(run(handler, b"no JSON", middleware=middleware), DeadLetter)
    first, second = spans.get_finished_spans()
    assert got == [{"id": 1}]
    assert first.context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert (first.status.is_ok, second.status.is_ok) == (True, False)


@both
def test_connections_of_django_are_closed_before_and_after_a_call(is_async, monkeypatch) -> None:
    database = pytest.importorskip("django.db")
    notes: list[str] = []
    monkeypatch.setattr(database, "close_old_connections", lambda: notes.append("close"))

    def work(order: dict, message: Message) -> None:
        notes.append("work")
        raise ERROR

    run(make(App(), is_async, work), {}, middleware=[DjangoConnections()])
    assert notes == ["close", "work", "close"]


# ---- the harness


def test_an_app_in_a_harness_has_its_own_time() -> None:
    app = App()
    done = []

    @app.handler("orders")
    async def order(body: dict) -> None:
        await app.publish_async("bills", body, defer_s=60)
        done.append(("order", app.clock()))

    @app.handler("bills")
    def bill(body: dict) -> None:
        done.append(("bill", app.clock()))

    with Harness(app, clock=Clock(1000)) as harness:
        app.publish("orders", {"id": 1}, defer_s=3600)
        assert harness.run(for_s=3599) == []
        assert [result.handler.topic for result in harness.run(for_s=61)] == ["orders", "bills"]
    assert done == [("order", 4600), ("bill", 4660)]
    assert harness.published("bills") == [b'{"id":1}']
    assert "_producer" not in vars(app)


def test_quiet_by_default(caplog) -> None:
    caplog.set_level(logging.INFO)
    run(make(App(), False, lambda order, message: None), {})
    assert caplog.text == ""


def test_an_envelope_is_what_the_middleware_sees() -> None:
    notes: list[Any] = []
    handler = make(App(), False, lambda order, message: notes.append(message.body))
    run(handler, {}, headers={"one": "1"}, middleware=[Notes("outer", notes)])
    assert unwrap(notes[0][2]) == (b"{}", {"one": "1"})
    assert notes[1] == b"{}"


@pytest.mark.parametrize(
    ("requests", "outcome"),
    [([Drop("old"), Drop("old")], Dropped("old")), ([Requeue(7)], RequeueAfter(7))],
    ids=["drop", "requeue"],
)
def test_a_request_out_of_a_task_group_is_one(requests, outcome) -> None:
    errors: list[Any] = []

    async def ask(request: Exception) -> None:
        raise request

    @App().handler("orders")
    async def handler(order: dict) -> None:
        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(ask(request))

    reports = [OnError(lambda error, call: errors.append(error))]
    assert run(handler, {}, middleware=reports) == outcome
    assert errors == []


def test_a_request_beside_an_error_is_an_error() -> None:
    @App().handler("orders", retry=RETRY)
    def handler(order: dict) -> None:
        raise ExceptionGroup("both", [Drop("old"), ERROR])

    assert isinstance(run(handler, {}, attempts=3), DeadLetter)


def test_in_a_batch_a_group_of_requests_is_for_its_message() -> None:
    app = App()

    @app.handler("orders", batch=Batch(2), retry=RETRY)
    def handler(orders: list[dict]) -> None:
        raise BatchFailed({0: ExceptionGroup("of a task group", [Drop("old")])})

    with Harness(app) as harness:
        app.publish("orders", {"id": 0})
        app.publish("orders", {"id": 1})
        assert [result.outcome for result in harness.run()] == [Dropped("old"), Finished()]


def test_a_thread_that_has_an_event_loop() -> None:
    """As that of a test that uses Playwright, or of one that is a coroutine."""

    async def test() -> list[Any]:
        return [run(make(App(), is_async, lambda *_: None), {}) for is_async in (False, True)]

    assert run_in_new_loop(test()) == [Finished(), Finished()]
