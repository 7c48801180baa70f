"""Apply each order exactly once, in PostgreSQL: its id is stored in the same transaction.

Start:  pip install 'psycopg[binary]'
        export DATABASE_URL=postgresql://localhost/shop
        python examples/exactly_once_postgresql.py
Try:    echo '{"id": "a1", "account": "ann", "amount": 5}' | to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150
        Publish it again: the balance stays the same.

Several of these may run, each with several handlers: the second transaction with an id waits for the first.
"""

import os
from typing import Any

import psycopg

from nsqd_py.work import App, Once

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
DATABASE_URL = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")

TABLE = "CREATE TABLE IF NOT EXISTS accounts (name text PRIMARY KEY, balance bigint NOT NULL)"

app = App(nsqd_tcp_addresses=NSQD)
once = Once(lambda: psycopg.connect(DATABASE_URL), key=lambda order: order["id"])


@app.handler("orders", channel="postgresql", concurrency=4, max_in_flight=20, once=once)
def apply(order: dict[str, Any], connection: psycopg.Connection) -> None:
    connection.execute(
        "INSERT INTO accounts VALUES (%(account)s, %(amount)s) "
        "ON CONFLICT (name) DO UPDATE SET balance = accounts.balance + excluded.balance",
        order,
    )


if __name__ == "__main__":
    with psycopg.connect(DATABASE_URL) as database:
        database.execute(TABLE)
    app.run()
