"""The outbox pattern: a row and its message are stored in one transaction, and a relay publishes the messages.

Start:  python examples/outbox.py
        It places three orders and relays them, until Ctrl-C. Stop nsqd in the meantime: the orders wait in the outbox.

Without the outbox, a program that crashes between its commit and its publish loses the message. The relay may publish a
message twice if it crashes before it deletes the row, so consumers compare ids (exactly_once_sqlite.py).
"""

import json
import os
import sqlite3
import time
import uuid
from contextlib import suppress

from nsqd_py.client import NsqClientError, Producer

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
DATABASE = os.environ.get("DATABASE", "shop.db")
POLL_INTERVAL_S = 0.2
BATCH = 100

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (position INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, body BLOB NOT NULL);
"""


def place_order(database: sqlite3.Connection, customer: str) -> None:
    order = {"id": uuid.uuid4().hex, "customer": customer}
    with database:  # a transaction: both rows or none
        database.execute("INSERT INTO orders VALUES (:id, :customer)", order)
        database.execute(
            "INSERT INTO outbox (topic, body) VALUES (?, ?)", ["orders", json.dumps(order).encode()]
        )


def relay(database: sqlite3.Connection, producer: Producer) -> int:
    """Publish the oldest messages of the outbox, and return how many."""
    rows = database.execute(
        "SELECT position, topic, body FROM outbox ORDER BY position LIMIT ?", [BATCH]
    ).fetchall()
    for position, topic, body in rows:
        producer.publish(topic, body)  # returns when nsqd has stored it
        with database:
            database.execute("DELETE FROM outbox WHERE position = ?", [position])
    return len(rows)


def relay_forever(database: sqlite3.Connection) -> None:
    with Producer(NSQD) as producer:
        while True:
            try:
                count = relay(database, producer)
            except NsqClientError as error:
                print("nsqd has not stored it:", error, flush=True)
                count = 0
            if not count:
                time.sleep(POLL_INTERVAL_S)


if __name__ == "__main__":
    connection = sqlite3.connect(DATABASE)
    connection.executescript(TABLES)
    for name in "ann", "ben", "eve":
        place_order(connection, name)
    with suppress(KeyboardInterrupt):
        relay_forever(connection)
