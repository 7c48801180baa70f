"""Examples that put messages into databases and files: each message has its effect once, also after a crash."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nsqd_py.testing.embedded import Nsqd
from tests.examples.test_consumers import channels, wait_until_all_are_finished
from tests.support.nsqd_process import wait_until
from tests.support.postgresql import running_postgresql

pytestmark = pytest.mark.ours

ORDERS = [json.dumps({"id": f"a{number}", "account": "ann", "amount": 1}) for number in range(20)]
JSON_LINES = [json.dumps({"customer": f"c{number}", "amount": number}) for number in range(1000)]


def test_an_order_counts_once_in_sqlite(nsqd, start, tmp_path):
    database = tmp_path / "accounts.db"
    nsqd.publish("orders", *ORDERS)
    first = start("exactly_once_sqlite.py", DATABASE=str(database))
    first.wait_for("applied")
    first.kill()  # some messages are applied and not finished
    nsqd.publish("orders", *ORDERS)
    start("exactly_once_sqlite.py", DATABASE=str(database)).wait_for("was applied before")
    wait_until_all_are_finished(nsqd, "orders")
    assert sqlite3.connect(database).execute("SELECT name, balance FROM accounts").fetchall() == [("ann", 20)]


def test_an_order_counts_once_in_postgresql(nsqd, start, postgresql):
    psycopg = pytest.importorskip("psycopg")
    nsqd.publish("orders", *ORDERS, *ORDERS)
    example = start("exactly_once_postgresql.py", DATABASE_URL=postgresql)
    wait_until_all_are_finished(nsqd, "orders")
    with psycopg.connect(postgresql) as connection:
        assert connection.execute("SELECT name, balance FROM accounts").fetchall() == [("ann", 20)]
    assert "Traceback" not in example.output()


@pytest.fixture
def postgresql() -> Iterator[str]:
    with running_postgresql() as address:
        yield address


def test_the_outbox_keeps_messages_while_nsqd_is_down(nsqd, start, tmp_path):
    address = nsqd.tcp_address
    nsqd.stop()
    database = tmp_path / "shop.db"
    example = start("outbox.py", DATABASE=str(database), NSQD_TCP_ADDRESS=address)
    example.wait_for("nsqd has not stored it")
    nsqd.restart()
    nsqd.wait_for_depth("orders", 3, timeout_s=40)
    wait_until(lambda: rows(database, "outbox") == [], 40, "the outbox to be empty")
    assert len(rows(database, "orders")) == 3


def rows(database: Path, table: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def test_batches_arrive_in_duckdb(nsqd, start, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    database = tmp_path / "orders.duckdb"
    nsqd.publish("orders", *JSON_LINES)
    example = start("batches_to_duckdb.py", DATABASE=str(database))
    example.wait_for("inserted")
    wait_until_all_are_finished(nsqd, "orders")
    example.end()  # its lock on the file
    connection = duckdb.connect(str(database))
    assert connection.execute("SELECT count(*), sum(amount), max(customer) FROM orders").fetchall() == [
        (1000, 499_500, "c999")
    ]
    (published,) = connection.execute("SELECT min(published) FROM orders").fetchone()
    assert abs(published.replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(minutes=1)


def test_batches_arrive_in_parquet_files(nsqd, start, tmp_path):
    polars = pytest.importorskip("polars")
    nsqd.publish("orders", *JSON_LINES)
    example = start("batches_to_polars.py", FOLDER=str(tmp_path / "parquet"), SECONDS="0.3")
    example.wait_for("wrote")
    wait_until_all_are_finished(nsqd, "orders")
    assert polars.read_parquet(tmp_path / "parquet/*.parquet")["amount"].sum() == 499_500


def test_what_is_collected_is_written_at_the_end(nsqd, start, tmp_path):
    polars = pytest.importorskip("polars")
    nsqd.publish("orders", *JSON_LINES)

    def written():
        files = tmp_path.glob("parquet/*.parquet")
        return [amount for file in files for amount in polars.read_parquet(file)["amount"]]

    def is_written_at_the_end():
        """Only a part is, if Ctrl-C came before all messages were in the example's queue: then the others come again."""
        example = start("batches_to_polars.py", FOLDER=str(tmp_path / "parquet"), SECONDS="600")
        wait_until(lambda: in_flight(nsqd) == 1000 - len(written()), 40, "all messages to be collected")
        example.end()
        wait_until(lambda: in_flight(nsqd) == 0, 40, "the connection to end")
        return len(written()) == 1000

    wait_until(is_written_at_the_end)
    nsqd.wait_for_depth("orders", 0, "parquet", timeout_s=40)
    assert sorted(written()) == list(range(1000))


def in_flight(nsqd: Nsqd) -> int:
    return sum(channel["in_flight_count"] for channel in channels(nsqd, "orders"))
