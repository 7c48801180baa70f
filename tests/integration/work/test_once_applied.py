"""With Once, messages that come several times have their effect once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from nsqd_py.work import App, Message, Once, Retry
from nsqd_py.work.running import HandlerStats
from tests.support.nsqd_process import wait_until
from tests.support.postgresql import running_postgresql

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.ours

COUNT = 60  # orders, each of which comes twice; for each third one, the first call fails after its work


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with running_postgresql() as address:
        yield address


def balance_of(connection: Any) -> int:
    (balance,) = connection.execute("SELECT balance FROM accounts").fetchone()
    return int(balance)


def is_done(nsqd: Any, topic: str) -> bool:
    found = nsqd.channel_stats(topic, "work")
    return bool(found) and found["depth"] + found["in_flight_count"] + found["deferred_count"] == 0


def publish_twice(app: App, topic: str) -> None:
    for number in range(COUNT):
        app.publish(topic, {"id": number})
        app.publish(topic, {"id": number})


def handle_all_twice(address: str, nsqd: Any, topic: str, concurrency: int, once: Once) -> HandlerStats:
    """Publish the orders twice, and run an app until all are finished. Return the statistics of its handler."""
    app = App(nsqd_tcp_addresses=address)

    @app.handler(
        topic, concurrency=concurrency, retry=Retry(attempts=None, first_s=0.01, factor=1), once=once
    )
    def bill(order: dict, message: Message, connection: Any) -> None:
        connection.execute("UPDATE accounts SET balance = balance + 1")
        if order["id"] % 3 == 0 and message.attempts == 1:
            raise RuntimeError("after its work")

    publish_twice(app, topic)
    with app.start() as running:
        wait_until(lambda: is_done(nsqd, topic), what="all messages to be finished")
        stats = running.stats()[0]
    app.close()
    return stats


def test_in_sqlite(shared_nsqd, address, topic, tmp_path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE accounts (balance INTEGER); INSERT INTO accounts VALUES (0)")
    once = Once(lambda: sqlite3.connect(path, timeout=30), key=lambda order: order["id"])
    stats = handle_all_twice(address, shared_nsqd, topic, 4, once)
    with closing(sqlite3.connect(path)) as connection:
        assert balance_of(connection) == COUNT
    assert stats.dropped == COUNT


def test_in_postgresql_with_several_threads(shared_nsqd, address, topic, postgresql) -> None:
    with psycopg.connect(postgresql) as connection:
        connection.execute("CREATE TABLE accounts (balance bigint)")
        connection.execute("INSERT INTO accounts VALUES (0)")
    once = Once(lambda: psycopg.connect(postgresql), key=lambda order: order["id"])
    stats = handle_all_twice(address, shared_nsqd, topic, 8, once)
    with psycopg.connect(postgresql) as connection:
        assert balance_of(connection) == COUNT
        (rows,) = connection.execute("SELECT count(*) FROM nsqd_py_applied").fetchone()
    assert (stats.dropped, rows) == (COUNT, COUNT)


def test_a_connection_that_postgresql_closes_is_replaced(shared_nsqd, address, topic, postgresql) -> None:
    app = App(nsqd_tcp_addresses=address)
    once = Once(lambda: psycopg.connect(postgresql), table="nsqd_py_replaced")
    pids = []

    @app.handler(topic, retry=Retry(first_s=0.01), once=once)
    def bill(message: Message, connection: psycopg.Connection) -> None:
        pids.append(connection.info.backend_pid)
        if message.attempts == 1:
            with psycopg.connect(postgresql, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", [pids[0]])
            connection.execute("SELECT 1")

    app.publish(topic, "1")
    with app.start():
        wait_until(lambda: is_done(shared_nsqd, topic), what="the message to be finished")
    app.close()
    assert len(set(pids)) == len(pids) == 2
