"""Insert messages into DuckDB, as many at a time as arrive together.

Start:  pip install duckdb
        python examples/batches_to_duckdb.py
Try:    seq 1000 | sed 's/.*/{"customer": "c&", "amount": &}/' |
            to-nsq --topic=orders --nsqd-tcp-address=127.0.0.1:4150

A batch is finished after its transaction. After a crash in between it comes again, and INSERT OR IGNORE skips the ids
that are there.
"""

import os
from contextlib import suppress

import duckdb

from nsqd_py.client import Consumer, MessageBatch

NSQD = os.environ.get("NSQD_TCP_ADDRESS", "127.0.0.1:4150")
DATABASE = os.environ.get("DATABASE", "orders.duckdb")

TABLE = """
CREATE TABLE IF NOT EXISTS orders (id VARCHAR PRIMARY KEY, published TIMESTAMP, customer VARCHAR, amount BIGINT)
"""
# unnest makes rows of the three lists: one statement for the whole batch.
INSERT = """
INSERT OR IGNORE INTO orders
SELECT id, make_timestamp(at_us), body ->> 'customer', CAST(body ->> 'amount' AS BIGINT)
FROM (SELECT unnest($ids) AS id, unnest($times_us) AS at_us, CAST(unnest($bodies) AS JSON) AS body)
"""

database = duckdb.connect(DATABASE)
database.execute(TABLE)


def insert(batch: MessageBatch) -> None:
    columns = {
        "ids": [message_id.decode() for message_id in batch.ids],
        "times_us": [time_ns // 1000 for time_ns in batch.timestamps_ns],
        "bodies": [body.decode() for body in batch.bodies],
    }
    database.execute(INSERT, columns)
    batch.finish()
    print("inserted", len(batch), flush=True)


if __name__ == "__main__":
    # Up to 2,500 messages come at once. One handler at a time, because a DuckDB connection serves one thread.
    with (
        suppress(KeyboardInterrupt),
        Consumer(
            "orders", "duckdb", batch_handler=insert, nsqd_tcp_addresses=NSQD, max_in_flight=2500
        ) as consumer,
    ):
        consumer.wait()
