"""A program with handlers, in which a type checker sees no mistake."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nsqd_py.work import (
    App,
    Batch,
    BatchFailed,
    Drop,
    Handler,
    Headers,
    Message,
    Middleware,
    Once,
    Requeue,
    Retry,
    Running,
)
from nsqd_py.work.middleware import Call, OnError
from nsqd_py.work.outcomes import DeadLetter, Finished
from nsqd_py.work.testing import Clock, Harness, run


@dataclass
class Order:
    id: int
    paid: bool


class Timing(Middleware):
    def around(self, message: Message, call: Call) -> None:
        print(call.handler.name, message.id)
        call()


def report(error: BaseException, call: Call) -> None:
    print(error, call.messages)


app = App("shop", nsqd_tcp_addresses=["127.0.0.1:4150"], middleware=[Timing(), OnError(report)])
once = Once(lambda: sqlite3.connect("shop.db"), key=lambda order: order.id)


@app.handler("orders", channel="billing", concurrency=8, retry=Retry(attempts=6, never=(KeyError,)))
def bill(order: Order) -> int:
    if not order.paid:
        raise Requeue(delay_s=30)
    return order.id


@app.handler("parcels", time_limit_s=30.0, rate=10)
async def ship(order: Order, message: Message, headers: Headers) -> None:
    if message.attempts > 2:
        raise Drop("it is too late")
    await app.publish_async("bills", order, defer_s=timedelta(hours=1))


@app.handler("readings", batch=Batch(most=100, within_s=0.5))
def store(readings: list[float], messages: list[Message]) -> None:
    raise BatchFailed({index: ValueError("negative") for index, value in enumerate(readings) if value < 0})


@app.handler("payments", once=once)
def pay(order: Order, connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE accounts SET balance = balance + 1")


def test() -> None:
    paid: int = bill(Order(id=1, paid=True))  # it is still the same function
    outcome = run(bill, Order(id=paid, paid=False), attempts=6, clock=Clock(1000))
    assert outcome == Finished() or isinstance(outcome, DeadLetter)
    with Harness(app) as harness:
        app.publish("orders", Order(id=1, paid=True), at=datetime.now(UTC))
        print([(result.handler.name, result.outcome) for result in harness.run(for_s=60)])


def main() -> None:
    first: Handler = app.handlers[0]
    print(first.name)
    running: Running = app.start()
    with running:
        running.wait(timeout_s=1)
        print([stats.finished for stats in running.stats()], running.failure)
    app.run()
    app.close()
