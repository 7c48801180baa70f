"""The id of a message and its work in one transaction of SQLite."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.client.errors import BadClientOption
from nsqd_py.work import App, Message, Once
from nsqd_py.work.outcomes import DeadLetter, Dropped, Finished, RequeueAfter, TransactionEnded
from nsqd_py.work.testing import run

APPLIED = Dropped("it was applied before")


class Shop:
    """An app with a handler that adds to a balance once."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.connections = 0
        self.fails = False
        connect_settings = settings.pop("connect_settings", {})
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, balance INTEGER)")
            connection.execute("INSERT OR IGNORE INTO accounts VALUES ('ann', 0)")
            connection.commit()

        def connect() -> sqlite3.Connection:
            self.connections += 1
            return sqlite3.connect(path, **connect_settings)

        app = App()

        @app.handler("orders", once=Once(connect, **settings))
        def bill(order: dict, connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE accounts SET balance = balance + ?", (order["amount"],))
            if self.fails:
                raise RuntimeError("no")

        self.app = app
        self.bill = bill

    @property
    def balance(self) -> int:
        with closing(sqlite3.connect(self.path)) as connection:
            (balance,) = connection.execute("SELECT balance FROM accounts").fetchone()
            return int(balance)


def kinds_of_connections() -> list[dict[str, Any]]:
    """The kinds of transactions that a connection of sqlite3 may have."""
    kinds: list[dict[str, Any]] = [{}, {"isolation_level": None}, {"isolation_level": "EXCLUSIVE"}]
    if hasattr(sqlite3, "LEGACY_TRANSACTION_CONTROL"):
        kinds += [{"autocommit": True}, {"autocommit": False}]
    return kinds


@pytest.mark.parametrize("kind", kinds_of_connections(), ids=str)
def test_a_message_that_comes_twice_is_applied_once(tmp_path, kind) -> None:
    shop = Shop(tmp_path / "shop.db", connect_settings=kind)
    assert run(shop.bill, {"amount": 5}) == Finished()
    assert run(shop.bill, {"amount": 5}, attempts=2) == APPLIED  # testing gives it the same id
    assert shop.balance == 5
    assert shop.connections == 1


def test_a_message_that_failed_is_applied_later(tmp_path) -> None:
    shop = Shop(tmp_path / "shop.db")
    shop.fails = True
    assert isinstance(run(shop.bill, {"amount": 5}), RequeueAfter)
    assert shop.balance == 0
    shop.fails = False
    assert run(shop.bill, {"amount": 5}, attempts=2) == Finished()
    assert shop.balance == 5


def test_the_key_is_that_of_the_publisher(tmp_path) -> None:
    shop = Shop(tmp_path / "shop.db", key=lambda order: order["id"], table="applied_orders")
    assert run(shop.bill, {"id": "a1", "amount": 5}) == Finished()
    assert run(shop.bill, {"id": "a2", "amount": 5}) == Finished()
    assert run(shop.bill, {"id": "a1", "amount": 5}) == APPLIED
    assert shop.balance == 10
    with closing(sqlite3.connect(shop.path)) as connection:
        rows = connection.execute("SELECT handler, id FROM applied_orders ORDER BY id").fetchall()
    assert rows == [("orders/work", "a1"), ("orders/work", "a2")]


def test_a_dead_letter_has_the_id_of_its_first_message(tmp_path) -> None:
    shop = Shop(tmp_path / "shop.db")
    assert run(shop.bill, {"amount": 5}, headers={"id": "18ad7b5b079df000"}) == Finished()
    assert run(shop.bill, {"amount": 5}, headers={"id": "18ad7b5b079df000"}) == APPLIED
    assert run(shop.bill, {"amount": 5}) == Finished()


def test_handlers_of_two_channels_each_apply_a_message(tmp_path) -> None:
    shop = Shop(tmp_path / "shop.db")
    once = shop.app.handlers[0].once

    @shop.app.handler("orders", channel="other", once=once)
    def other(message: Message, connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE accounts SET balance = balance + 1")

    assert run(shop.bill, {"amount": 5}) == Finished()
    assert run(other, {"amount": 5}) == Finished()
    assert run(other, {"amount": 5}) == APPLIED
    assert shop.balance == 6


def test_each_thread_and_each_child_has_a_connection(tmp_path) -> None:
    shop = Shop(tmp_path / "shop.db", key=lambda order: order["id"])
    run(shop.bill, {"id": 1, "amount": 1})
    thread = threading.Thread(target=lambda: run(shop.bill, {"id": 2, "amount": 1}))
    thread.start()
    thread.join(40)
    assert (shop.balance, shop.connections) == (2, 2)
    pid = os.fork()
    if pid == 0:
        run(shop.bill, {"id": 3, "amount": 1})
        os._exit(shop.connections)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert shop.balance == 3


def test_a_handler_that_commits_is_told(tmp_path) -> None:
    shop = Shop(tmp_path / "shop.db")

    @shop.app.handler("bills", once=shop.app.handlers[0].once)
    def commits(order: dict, connection: sqlite3.Connection) -> None:
        connection.commit()

    outcome: Any = run(commits, {})
    assert "remove its commit or rollback" in str(outcome.error)


@pytest.mark.parametrize("kind", kinds_of_connections(), ids=str)
@pytest.mark.parametrize("goes_on", [False, True], ids=["", "goes on"])
def test_a_handler_that_commits_and_fails_is_told(tmp_path, kind, goes_on, caplog) -> None:
    """The id must not be committed with the first half of the work, so that the second one is never done."""
    shop = Shop(tmp_path / "shop.db", connect_settings=kind)

    @shop.app.handler("bills", once=shop.app.handlers[0].once)
    def half(order: dict, connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE accounts SET balance = balance + 1")
        connection.execute("COMMIT")
        if goes_on:
            if not connection.in_transaction:
                connection.execute("BEGIN")
            connection.execute("UPDATE accounts SET balance = balance + 100")
        raise OSError("the mail server is away")

    outcome: Any = run(half, {})
    assert isinstance(outcome, DeadLetter)
    assert isinstance(outcome.error, TransactionEnded)
    assert isinstance(outcome.error.__cause__, OSError)
    assert shop.balance == 1
    (record,) = [record for record in caplog.records if "failed on" in record.getMessage()]
    assert "half of bills/work failed on" in record.getMessage()
    assert "remove its commit or rollback" in record.getMessage()
    again: Any = run(half, {}, attempts=2)  # a replay of the dead letter
    assert isinstance(again, DeadLetter)


def test_a_commit_that_fails_is_no_end_by_the_handler(tmp_path) -> None:
    shop = Shop(tmp_path / "shop.db")

    @shop.app.handler("bills", once=shop.app.handlers[0].once)
    def orphan(order: dict, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("INSERT INTO children VALUES ('nobody')")

    with closing(sqlite3.connect(shop.path)) as connection:
        connection.execute(
            "CREATE TABLE children (parent TEXT REFERENCES accounts (name) DEFERRABLE INITIALLY DEFERRED)"
        )
    run(shop.bill, {"amount": 1})
    once: Any = shop.app.handlers[0].once
    once._own_connection().execute("PRAGMA foreign_keys = ON")
    outcome: Any = run(orphan, {})
    assert isinstance(outcome, RequeueAfter)
    assert isinstance(outcome.error, sqlite3.IntegrityError)


def test_a_key_of_none_is_an_error(tmp_path) -> None:
    shop = Shop(tmp_path / "shop.db", key=lambda order: order.get("id"))
    for _ in range(2):
        outcome: Any = run(shop.bill, {"amount": 5})
        assert isinstance(outcome, RequeueAfter)
        assert "the key of once returned None" in str(outcome.error)
    assert run(shop.bill, {"id": 0, "amount": 5}) == Finished()
    assert shop.balance == 5


def test_a_connection_that_was_closed_is_replaced(tmp_path) -> None:
    shop = Shop(tmp_path / "shop.db")

    @shop.app.handler("bills", once=shop.app.handlers[0].once)
    def closes(order: dict, connection: sqlite3.Connection) -> None:
        connection.close()

    assert isinstance(run(closes, {}), RequeueAfter)
    assert run(shop.bill, {"amount": 5}) == Finished()
    assert shop.connections == 2


def test_a_connection_of_another_kind_is_refused() -> None:
    app = App()

    @app.handler("orders", once=Once(lambda: object()))
    def bill(order: dict) -> None: ...

    outcome: Any = run(bill, {})
    assert "once needs a connection of sqlite3 or psycopg" in str(outcome.error)


@pytest.mark.parametrize("table", ["", "a b", "a;b", "a.b.c", "1a"])
def test_a_table_with_an_odd_name_is_refused(table) -> None:
    with pytest.raises(BadClientOption, match="table must be"):
        Once(lambda: None, table=table)
