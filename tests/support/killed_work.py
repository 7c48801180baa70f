"""An app whose processes and whose nsqd are killed: each handler notes its effects, with the number that its message has.

KILLS_NSQD is the address of the nsqd, KILLS_FOLDER the folder of the notes: the file EFFECTS, a line each, and for handlers with
`Once` the table `effects` of DATABASE.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

from nsqd_py.protocol.envelope import unwrap
from nsqd_py.work import App, Batch, Message, Middleware, Once, Retry
from nsqd_py.work.middleware import Call
from nsqd_py.work.timed.scheduler import DUE_HEADER, SCHEDULE_HEADER

NAME = "kills"
EFFECTS = "effects"
DATABASE = "effects.db"
TABLE = "CREATE TABLE IF NOT EXISTS effects (kind TEXT, number INTEGER, message TEXT, at REAL)"
INSERT = "INSERT INTO effects (kind, number, message, at) VALUES (?, ?, ?, ?)"
INTERVAL_S = 2
# Longer delays are chained by the app.
LONGEST_DEFER_S = 2.0
SLOW_S = 2.5
LONGEST_CALL_S = 0.3
# Handlers with `Once` work in a transaction, one at a time.
LONGEST_TRANSACTION_S = 0.01
RETRIES = 2
RETRY_S = 0.1

folder = Path(os.environ.get("KILLS_FOLDER", "."))
address = os.environ.get("KILLS_NSQD", "127.0.0.1:4150")


def note(lines: Iterable[tuple[object, ...]]) -> None:
    """Add lines in one call, so that lines of several processes do not mix."""
    text = "".join(" ".join(map(str, [*words, time.time()])) + "\n" for words in lines)
    descriptor = os.open(folder / EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


class JobNotes(Middleware):
    """Notes the occurrence of each job of a schedule, after it has run."""

    def around(self, message: Message, call: Call) -> None:
        _, headers = unwrap(message.body)
        call()
        if SCHEDULE_HEADER in headers:
            note([("job", headers[DUE_HEADER])])


app = App(NAME, nsqd_tcp_addresses=address, longest_defer_s=LONGEST_DEFER_S, middleware=[JobNotes()])
stubborn = Retry(attempts=None, first_s=RETRY_S, factor=1, most_s=RETRY_S)


def connect() -> sqlite3.Connection:
    return sqlite3.connect(folder / DATABASE)


def work(longest_s: float = LONGEST_CALL_S) -> None:
    time.sleep(random.uniform(0, longest_s))


@app.handler("plain", concurrency=8, retry=stubborn)
def plain(value: dict) -> None:
    work()
    note([("plain", value["number"])])


@app.handler("slow", concurrency=2, retry=stubborn)
def slow(value: dict) -> None:
    """Run longer than the time-out of a message, which is touched."""
    time.sleep(SLOW_S)
    note([("slow", value["number"])])


@app.handler("keyed", concurrency=2, retry=stubborn, once=Once(connect, key=lambda value: value["number"]))
def keyed(value: dict, message: Message, connection: sqlite3.Connection) -> None:
    connection.execute(INSERT, ["keyed", value["number"], message.id.decode(), time.time()])
    work(LONGEST_TRANSACTION_S)


@app.handler("identified", concurrency=2, retry=stubborn, once=Once(connect))
def identified(value: dict, message: Message, connection: sqlite3.Connection) -> None:
    connection.execute(INSERT, ["identified", value["number"], message.id.decode(), time.time()])
    work(LONGEST_TRANSACTION_S)


@app.handler("retried", concurrency=8, retry=stubborn)
def retried(value: dict, message: Message) -> None:
    """Fail at the first attempts."""
    work()
    if message.attempts <= RETRIES:
        raise ConnectionError("it is not there yet")
    note([("retried", value["number"])])


@app.handler("doomed", retry=Retry(attempts=2, first_s=RETRY_S, factor=1, most_s=RETRY_S))
def doomed(value: dict) -> None:
    """Become a dead letter."""
    work()
    raise ValueError(f"{value['number']} is not valid")


@app.handler("asynchronous", concurrency=8, retry=stubborn)
async def asynchronous(value: dict) -> None:
    await asyncio.sleep(random.uniform(0, LONGEST_CALL_S))
    note([("asynchronous", value["number"])])


@app.handler("batched", batch=Batch(most=10, within_s=0.2), retry=stubborn)
def batched(values: list[dict]) -> None:
    work()
    note(("batched", value["number"]) for value in values)


@app.handler("deferred", concurrency=4, retry=stubborn)
def deferred(value: dict) -> None:
    note([("deferred", value["number"])])


@app.every(seconds=INTERVAL_S)
def tick() -> None:
    work()
