"""Apply each order exactly once, although NSQ may deliver it twice: remember its id in the same transaction.

Start:  python examples/exactly_once_sqlite.py
Try:    echo '{"id": "a1", "account": "ann", "amount": 5}' | to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150
        Publish it again: the balance stays the same.

The id is one that the publisher gives the order. The id of the message would not be enough: a publisher that repeats a
publish, because it did not get the answer, makes a second message.
"""

import json
import os
import sqlite3
from contextlib import suppress
from typing import Any

from nsqd_py.client import Consumer, Message

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
DATABASE = os.environ.get("DATABASE", "accounts.db")

TABLES = """
CREATE TABLE IF NOT EXISTS applied (id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL);
"""


def apply(database: sqlite3.Connection, order: dict[str, Any]) -> bool:
    """Return False if this order was applied before."""
    with database:  # a transaction: both rows or none
        known = database.execute("INSERT OR IGNORE INTO applied VALUES (?)", [order["id"]])
        if known.rowcount == 0:
            return False
        database.execute(
            "INSERT INTO accounts VALUES (:account, :amount) "
            "ON CONFLICT (name) DO UPDATE SET balance = balance + excluded.balance",
            order,
        )
    return True


def handle(message: Message) -> None:
    database = sqlite3.connect(DATABASE)
    try:
        is_new = apply(database, json.loads(message.body))
    finally:
        database.close()
    print("applied" if is_new else "was applied before", message.body.decode(), flush=True)


if __name__ == "__main__":
    connection = sqlite3.connect(DATABASE)
    connection.executescript(TABLES)
    connection.close()
    with (
        suppress(KeyboardInterrupt),
        Consumer("orders", "sqlite", handle, nsqd_tcp_addresses=NSQD, max_in_flight=10) as consumer,
    ):
        consumer.wait()
