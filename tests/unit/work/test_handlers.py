"""Declared handlers: what their parameters get, and declarations that are refused."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from nsqd_py.work import App, BadHandler, Batch, Headers, Message, Once, Retry
from nsqd_py.work.handlers import HEADERS, MESSAGE, VALUE, handler_of

if TYPE_CHECKING:
    from decimal import Decimal


def generator(order: dict):
    yield order


async def async_generator(order: dict):
    yield order


def two_values(order: dict, customer: dict) -> None: ...
def any_number(*orders: dict) -> None: ...
def by_position(order: dict, /) -> None: ...
def not_at_run_time(order: Decimal) -> None: ...
def no_list(orders: dict) -> None: ...
def of_a_value(order: dict) -> None: ...
async def of_asyncio(order: dict) -> None: ...


ONCE = Once(lambda: None)


@pytest.mark.parametrize(
    ("function", "settings", "text"),
    [
        (generator, {}, "generator function, which does not run: remove its `yield`"),
        (async_generator, {}, "generator function"),
        (two_values, {}, "it takes several values, order, customer"),
        (any_number, {}, "*orders"),
        (by_position, {}, "is not passed by name"),
        (not_at_run_time, {}, "name 'Decimal' is not defined): import it at run time"),
        (no_list, {"batch": Batch(10)}, "annotate it with a list"),
        (of_a_value, {"channel": "bad name"}, "bad name"),
        (of_a_value, {"channel": 7}, "a topic or channel is a str"),
        (of_a_value, {"concurrency": 0}, "concurrency must be at least 1, got 0"),
        (of_a_value, {"concurrency": 4, "max_in_flight": 3}, "max_in_flight must be at least 4"),
        (of_a_value, {"time_limit_s": 0}, "time_limit_s must be above 0, or None, got 0"),
        (of_a_value, {"rate": 0}, "rate must be above 0, or None, got 0"),
        (of_a_value, {"retry": Retry(most_s=3601)}, "most_s of retry must be at most 3600"),
        (
            of_a_value,
            {"concurrency": "8"},
            "concurrency must be a whole number, as in concurrency=8, got '8'",
        ),
        (of_a_value, {"concurrency": 2.5}, "concurrency must be a whole number"),
        (of_a_value, {"concurrency": None}, "concurrency must be a whole number"),
        (of_a_value, {"max_in_flight": True}, "max_in_flight must be a whole number"),
        (
            of_a_value,
            {"rate": "10/s"},
            "rate must be a finite number, as in rate=10, which is calls a second, got '10/s'",
        ),
        (of_a_value, {"rate": float("nan")}, "rate must be a finite number"),
        (
            of_a_value,
            {"time_limit_s": timedelta(minutes=1)},
            "time_limit_s must be a finite number, as in time_limit_s=60",
        ),
        (of_a_value, {"retry": 5}, "retry must be a Retry, as in retry=Retry(attempts=5), got 5"),
        (of_a_value, {"retry": 0}, "retry must be a Retry"),
        (of_a_value, {"batch": 5}, "batch must be a Batch, as in batch=Batch(most=100), got 5"),
        (of_a_value, {"once": len}, "once must be a Once"),
        (of_asyncio, {"once": ONCE}, "once needs a plain function without batch"),
        (object(), {}, "must be a function"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(
    function: Any, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadHandler) as caught:
        App().handler("orders", **settings)(function)
    assert text in str(caught.value)
    assert "of topic orders" in str(caught.value)
    if hasattr(function, "__qualname__"):
        assert f"{__name__}.{function.__qualname__}" in str(caught.value)


def test_two_handlers_do_not_share_a_channel() -> None:
    app = App("shop")
    app.handler("orders")(of_a_value)
    app.handler("orders", channel="other")(of_asyncio)
    with pytest.raises(BadHandler, match="of_a_value has the channel shop already"):
        app.handler("orders", channel="shop")(of_asyncio)
    assert [str(handler).rpartition(".")[2] for handler in app.handlers] == [
        "of_a_value of orders/shop",
        "of_asyncio of orders/other",
    ]


def test_a_parameter_gets_what_its_annotation_names() -> None:
    def everything(message: Message, order: dict, headers: Headers, number: int = 3, **more: str) -> None: ...

    handler = declared(everything)
    assert handler.roles == {"message": MESSAGE, "order": VALUE, "headers": HEADERS}
    assert handler.decode(b"{}") == {}


def test_a_message_alone_is_not_decoded() -> None:
    def raw(message) -> None: ...

    handler = declared(raw)
    assert handler.roles == {"message": MESSAGE}
    assert handler.decode is None


def test_a_batch_gives_lists() -> None:
    def several(orders: Sequence[int], messages: list[Message], headers: list[Headers]) -> None: ...

    handler = declared(several, batch=Batch(10), concurrency=3)
    assert handler.roles == {"orders": VALUE, "messages": MESSAGE, "headers": HEADERS}
    assert handler.decode(b"7") == 7
    assert handler.max_in_flight == 30


def test_the_default_retry_keeps_within_the_longest_delay() -> None:
    app = App(longest_defer_s=0.5)
    app.handler("orders")(of_a_value)
    assert app.handlers[0].retry == Retry(first_s=0.5, most_s=0.5)


def test_partials_and_objects_are_handlers() -> None:
    class Billing:
        def __call__(self, order: int) -> None: ...

    def of_two(order: int, tax: float) -> None: ...

    assert declared(Billing()).decode(b"7") == 7
    assert declared(functools.partial(of_two, tax=0.1)).roles == {"order": VALUE}


def declared(function: Any, **settings: Any) -> Any:
    app = App()
    assert app.handler("orders", **settings)(function) is function
    assert handler_of(function) is app.handlers[0]
    return app.handlers[0]
