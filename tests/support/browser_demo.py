"""A cluster for pictures of nsqadmin's page: traffic that comes in waves, and a few troubles."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import Client, Closed, Message, fin, req

FLAGS = (
    "--max-attempts=payments=1",
    "--retention-time=1h",
    "--e2e-processing-latency-percentile=0.99,0.95,0.5",
    "--e2e-processing-latency-window-time=1m",
)
# Topics with their channels, and how many messages a second come to each nsqd.
TOPICS: dict[str, tuple[tuple[str, ...], int]] = {
    "clicks": (("archive", "stats", "tail#ephemeral"), 60),
    "invoices": (("mailer",), 2),
    "logs": ((), 20),
    "orders": (("archive", "billing", "search"), 30),
    "payments": (("ledger",), 8),
    "users": (("mailer", "search"), 5),
}
# Who reads what: (topic, channel), of how many messages one fails.
READERS = {
    ("clicks", "archive"): 0,
    ("clicks", "stats"): 0,
    ("orders", "archive"): 20,
    ("orders", "billing"): 0,
    ("users", "mailer"): 9,
    ("payments", "ledger"): 40,
}
# How many messages wait at the beginning, by topic and the channel that has them.
WAITING = {
    ("orders", "search"): 2_000,
    ("invoices", "mailer"): 300,
    ("logs", ""): 900,
    ("users", "search"): 120,
}
_BATCHES_A_SECOND = 5


def message(number: int) -> bytes:
    return json.dumps(
        {
            "id": f"o-{number:06}",
            "customer": {"id": number % 977, "country": ["DE", "FR", "NL"][number % 3]},
            "items": [{"sku": f"A-{number % 53}", "count": 1 + number % 4}],
            "total": round(number % 211 * 1.37, 2),
        }
    ).encode()


@contextmanager
def traffic(cluster: AdminCluster) -> Iterator[None]:
    """Topics, what waits in them, and threads that publish and consume until the end."""
    for (topic, channel), count in WAITING.items():
        cluster.create(topic, *([channel] if channel else []))
        for nsqd in cluster.nsqds:
            with nsqd.connect() as client:
                client.mpub(topic, [message(number) for number in range(count)])
    for topic, (channels, _) in TOPICS.items():
        cluster.create(topic, *channels)
    cluster.nsqds[1].post("/channel/pause?topic=invoices&channel=mailer")
    over = threading.Event()
    work = [threading.Thread(target=_publish, args=(nsqd, over), daemon=True) for nsqd in cluster.nsqds]
    work += [
        threading.Thread(target=_consume, args=(nsqd, topic, channel, fails, over), daemon=True)
        for nsqd in cluster.nsqds
        for (topic, channel), fails in READERS.items()
    ]
    for thread in work:
        thread.start()
    yield
    over.set()
    for thread in work:
        thread.join()


def _publish(nsqd: NsqdProcess, over: threading.Event) -> None:
    number = 0
    with nsqd.connect() as client:
        while not over.wait(1 / _BATCHES_A_SECOND):
            for topic, (_, rate) in TOPICS.items():
                count = max(1, int(_pace() * rate / _BATCHES_A_SECOND * random.uniform(0.7, 1.3)))
                client.mpub(topic, [message(number + place) for place in range(count)])
                number += count


def _pace() -> float:
    """Waves of some minutes and of half a minute, around 1."""
    now_s = time.monotonic()
    return 1 + 0.5 * math.sin(now_s / 60) + 0.2 * math.sin(now_s / 5)


def _consume(nsqd: NsqdProcess, topic: str, channel: str, fails: int, over: threading.Event) -> None:
    """Of so many messages, one is given back; of 0, none."""
    with nsqd.consumer(
        topic,
        channel,
        50,
        client_id=f"{topic}-worker",
        hostname=f"{channel}-1.example",
        user_agent="worker/2.1",
    ) as client:
        number = 0
        while not over.is_set():
            with suppress(TimeoutError, Closed):
                number += 1
                _answer(client, client.message(0.5), fails and number % fails == 0)


def _answer(client: Client, message: Message, fails: bool | int) -> None:
    time.sleep(random.expovariate(2_000))  # what it takes to work on it
    client.send(req(message.id, 0) if fails else fin(message.id))
