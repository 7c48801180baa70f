"""The Celery app of tests: its tasks note what they did in a file, one line an effect.

CELERY_BROKER names the broker, CELERY_EFFECTS the file, CELERY_SETTINGS more settings as JSON.
`publish` runs in a process of its own: it publishes tasks until standard input ends, and notes in a file those that the broker
has accepted.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import sys
import time
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

import nsqd_py.celery  # noqa: F401 - makes nsq:// known

ETAS_S = (0.3, 0.7, 1.5, 3.0)

app = Celery("tests", broker=os.environ["CELERY_BROKER"], backend=os.environ.get("CELERY_BACKEND"))
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_send_task_events=False,
    task_ignore_result="CELERY_BACKEND" not in os.environ,
    **json.loads(os.environ.get("CELERY_SETTINGS", "{}")),
)


def note(path: str, *words: object) -> None:
    """Add a line in one call, so that lines of several processes do not mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (" ".join(map(str, [*words, time.time()])) + "\n").encode())
    finally:
        os.close(descriptor)


def effect(*words: object) -> None:
    note(os.environ["CELERY_EFFECTS"], *words)


@app.task
def early(number: int) -> int:
    """Acknowledged before it runs."""
    effect("early", number, os.getpid())
    return number


@app.task(acks_late=True)
def late(number: int) -> None:
    """Acknowledged after it ran."""
    effect("late", number, os.getpid())


@app.task
def eta(number: int) -> None:
    effect("eta", number, os.getpid())


@app.task(acks_late=True)
def slow(number: int, seconds: float) -> None:
    effect("begin", number, os.getpid())
    time.sleep(seconds)
    effect("end", number, os.getpid())


@app.task(bind=True, max_retries=5)
def flaky(self: Any, failures: int) -> None:
    effect("flaky", self.request.retries, os.getpid())
    if self.request.retries < failures:
        raise self.retry(countdown=0.2)


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def deadly(self: Any) -> None:
    """End its process at the first delivery."""
    effect("deadly", int(bool(self.request.delivery_info["redelivered"])), os.getpid())
    if not self.request.delivery_info["redelivered"]:
        os._exit(1)


KINDS: dict[str, Any] = {"early": early, "late": late, "eta": eta}


def publish(accepted: str, pause_s: float) -> None:
    for number in itertools.count():
        if select.select([sys.stdin], [], [], pause_s)[0]:
            return
        kind = list(KINDS)[number % 3]
        options: dict[str, Any] = {}
        due_s = 0.0
        if kind == "eta":
            countdown_s = ETAS_S[number // 3 % len(ETAS_S)]
            due_s = time.time() + countdown_s
            options["countdown"] = countdown_s
        try:
            KINDS[kind].apply_async((number,), **options)
        except OperationalError:
            continue
        note(accepted, kind, number, due_s)
