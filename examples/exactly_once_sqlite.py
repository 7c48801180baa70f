"""Apply each order exactly once, although NSQ may deliver it twice: its id is stored in the same transaction.

Start:  python examples/exactly_once_sqlite.py
Try:    echo '{"id": "a1", "account": "ann", "amount": 5}' | to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150
        Publish it again: the balance stays the same.

The id is one that the publisher gives the order. The id of the message would not be enough: a publisher that repeats a
publish, because it did not get the answer, makes a second message.
"""

import os
import sqlite3
from typing import Any

from nsqd_py.work import App, Once

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
DATABASE = os.environ.get("DATABASE", "accounts.db")

TABLE = "CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL)"

app = App(nsqd_tcp_addresses=NSQD)


@app.handler(
    "orders", channel="sqlite", once=Once(lambda: sqlite3.connect(DATABASE), key=lambda order: order["id"])
)
def apply(order: dict[str, Any], connection: sqlite3.Connection) -> None:
    connection.execute(
        "INSERT INTO accounts VALUES (:account, :amount) "
        "ON CONFLICT (name) DO UPDATE SET balance = balance + excluded.balance",
        order,
    )
    print("applied", order["id"], flush=True)


if __name__ == "__main__":
    with sqlite3.connect(DATABASE) as database:
        database.execute(TABLE)
    app.run()
