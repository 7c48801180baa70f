"""A cluster that is nice to look at, for pictures of nsqadmin's page: traffic, a past of a day, and a few troubles."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nsqadmin_py.history.book import Book, Key
from nsqadmin_py.history.file import encode, pack
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import Client, Closed, Message, fin, req

FLAGS = (
    "--max-attempts=payments=1", "--retention-time=1h", "--e2e-processing-latency-percentile=0.99,0.95,0.5",
    "--e2e-processing-latency-window-time=1m",
)  # fmt: skip
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
READERS = {("clicks", "stats"): 0, ("orders", "archive"): 20, ("orders", "billing"): 0, ("users", "mailer"): 9,
           ("payments", "ledger"): 6}  # fmt: skip
_WAITING = 2_000
_DAY_S = 24 * 3600
_HOUR_S = 3600
_BATCHES_A_SECOND = 5


def message(number: int) -> bytes:
    return json.dumps({
        "id": f"o-{number:06}", "customer": {"id": number % 977, "country": ["DE", "FR", "NL"][number % 3]},
        "items": [{"sku": f"A-{number % 53}", "count": 1 + number % 4}], "total": round(number % 211 * 1.37, 2),
    }).encode()  # fmt: skip


@contextmanager
def traffic(cluster: AdminCluster) -> Iterator[None]:
    """Topics, what waits in them, and threads that publish and consume until the end."""
    for topic, (channels, _) in TOPICS.items():
        cluster.create(topic, *channels)
    with cluster.nsqds[0].connect() as client:
        client.mpub("orders", [message(number) for number in range(_WAITING)])
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
                count = max(1, int(rate / _BATCHES_A_SECOND * random.uniform(0.7, 1.3)))
                client.mpub(topic, [message(number + place) for place in range(count)])
                number += count


def _consume(nsqd: NsqdProcess, topic: str, channel: str, fails: int, over: threading.Event) -> None:
    """Of so many messages, one is given back; of 0, none."""
    with nsqd.connect(client_id=f"{topic}-worker", hostname=f"{channel}-1.example", user_agent="worker/2.1") as client:
        client.sub(topic, channel, 50)
        number = 0
        while not over.is_set():
            with suppress(TimeoutError, Closed):
                number += 1
                _answer(client, client.message(0.5), fails and number % fails == 0)


def _answer(client: Client, message: Message, fails: bool | int) -> None:
    time.sleep(random.expovariate(2_000))  # what it takes to work on it
    client.send(req(message.id, 0) if fails else fin(message.id))


# ---- a past


def write_history(path: Path, cluster: AdminCluster, now_s: float) -> None:
    """Of the last day, as nsqadmin would have recorded it."""
    book = Book()
    times = [*range(int(now_s) - _DAY_S, int(now_s) - _HOUR_S, 60), *range(int(now_s) - _HOUR_S, int(now_s), 2)]
    keys = list(_keys(cluster))
    for time_s in times:
        book.record(time_s, [(key, _figures(scale, time_s, now_s), (0.99, 0.95, 0.5)) for key, scale in keys])
    path.write_bytes(pack(encode(book)))


def _keys(cluster: AdminCluster) -> Iterator[tuple[Key, float]]:
    """With how much goes on there, in messages a second."""
    for topic, (channels, rate) in TOPICS.items():
        yield Key(topic), 2.0 * rate
        yield from ((Key(topic, channel), 2.0 * rate) for channel in channels)
    total = float(sum(rate for _, rate in TOPICS.values()))
    yield Key(), 2 * total
    yield from ((Key(node=address(nsqd)), total) for nsqd in cluster.nsqds)


def _figures(rate: float, time_s: float, now_s: float) -> dict[str, float]:
    """Waves of a day and of some minutes; at `now_s` both are in the middle."""
    age_s = now_s - time_s
    day = 1 + 0.5 * math.sin(age_s / _DAY_S * 2 * math.pi)
    wave = 1 + 0.25 * math.sin(age_s / 700) + 0.1 * math.sin(age_s / 130) + random.uniform(-0.05, 0.05)
    pace = rate * day * wave
    slow = 1 + 2 * max(0.0, math.sin(age_s / 2_300) - 0.8)
    return {
        "depth": float(int(40 * pace * slow)), "in_flight": float(int(pace * 0.8)), "deferred": float(int(pace * 0.2)),
        "message_rate": pace, "requeue_rate": pace * 0.03 * wave, "timeout_rate": 0.002 * pace * (slow - 1),
        "latency_0": 9e6 * slow * wave, "latency_1": 4e6 * slow * wave, "latency_2": 8e5 * wave,
    }  # fmt: skip
