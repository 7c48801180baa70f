"""Apply each order exactly once, in PostgreSQL: remember its id in the same transaction.

Start:  pip install 'psycopg[binary]'
        export DATABASE_URL=postgresql://localhost/shop
        python examples/exactly_once_postgresql.py
Try:    echo '{"id": "a1", "account": "ann", "amount": 5}' | to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150
        Publish it again: the balance stays the same.

Several of these may run, each with several handlers: the second transaction with an id waits for the first.
"""

import json
import os
import threading
from contextlib import suppress

import psycopg

from nsqd_py.client import Consumer, Message

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
DATABASE_URL = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")

TABLES = """
CREATE TABLE IF NOT EXISTS applied (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS accounts (name text PRIMARY KEY, balance bigint NOT NULL);
"""
local = threading.local()  # each thread that runs handlers has a connection


def database() -> psycopg.Connection:
    if not hasattr(local, "connection") or local.connection.closed:
        local.connection = psycopg.connect(DATABASE_URL, autocommit=True)
    return local.connection


def handle(message: Message) -> None:
    order = json.loads(message.body)
    with database().transaction(), database().cursor() as cursor:
        cursor.execute("INSERT INTO applied (id) VALUES (%(id)s) ON CONFLICT DO NOTHING", order)
        if cursor.rowcount:
            cursor.execute(
                "INSERT INTO accounts VALUES (%(account)s, %(amount)s) "
                "ON CONFLICT (name) DO UPDATE SET balance = accounts.balance + excluded.balance",
                order,
            )
    # Here the transaction is committed, and the message is finished. A crash in between delivers it again.


if __name__ == "__main__":
    with psycopg.connect(DATABASE_URL) as connection:
        connection.execute(TABLES)
    with (
        suppress(KeyboardInterrupt),
        Consumer(
            "orders", "postgresql", handle, nsqd_tcp_addresses=NSQD, max_in_flight=20, concurrency=4
        ) as consumer,
    ):
        consumer.wait()
