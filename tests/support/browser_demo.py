"""A cluster that is nice to look at, for pictures of nsqadmin's page: traffic, a past of a day, and a few troubles."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nsqadmin_py.history.file import encode, pack
from nsqadmin_py.history.series import History, Key
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import Client, Closed, Message, fin, req

QUANTILES = (0.99, 0.95, 0.5)
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
READERS = {
    ("clicks", "archive"): 0, ("clicks", "stats"): 0, ("orders", "archive"): 20, ("orders", "billing"): 0,
    ("users", "mailer"): 9, ("payments", "ledger"): 40,
}  # fmt: skip
# How many messages wait at the beginning, by topic and the channel that has them.
WAITING = {("orders", "search"): 2_000, ("invoices", "mailer"): 300, ("logs", ""): 900, ("users", "search"): 120}
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
    """Of the last day, as nsqadmin would have recorded it; it ends as things are now."""
    book = History()
    times = [*range(int(now_s) - _DAY_S, int(now_s) - _HOUR_S, 60), *range(int(now_s) - _HOUR_S, int(now_s), 2)]
    depths, rates = _depths(cluster), dict(_rates(cluster))
    for time_s in times:
        figures = [(key, _figures(rates[key], depths[key], now_s - time_s), QUANTILES) for key in rates]
        book.record(time_s, figures)
    path.write_bytes(pack(encode(book, [])))


def _depths(cluster: AdminCluster) -> Counter[Key]:
    found: Counter[Key] = Counter()
    for nsqd in cluster.nsqds:
        for topic in nsqd.stats()["topics"]:
            name = topic["topic_name"]
            depth = topic["depth"] + sum(channel["depth"] for channel in topic["channels"])
            found.update({Key(): depth, Key(name): depth, Key(node=address(nsqd)): depth})
            found.update({Key(name, channel["channel_name"]): channel["depth"] for channel in topic["channels"]})
    return found


def _rates(cluster: AdminCluster) -> Iterator[tuple[Key, tuple[float, float]]]:
    """How many messages come a second, and how many are finished."""
    total = [0.0, 0.0]
    for topic, (channels, rate) in TOPICS.items():
        finished = {channel: 2.0 * rate * ((topic, channel) in READERS) for channel in channels}
        yield from ((Key(topic, channel), (2.0 * rate, done)) for channel, done in finished.items())
        yield Key(topic), (2.0 * rate, sum(finished.values()))
        total = [total[0] + 2.0 * rate, total[1] + sum(finished.values())]
    yield Key(), (total[0], total[1])
    yield from ((Key(node=address(nsqd)), (total[0] / 2, total[1] / 2)) for nsqd in cluster.nsqds)


def _figures(rates: tuple[float, float], depth: float, age_s: float) -> dict[str, float]:
    """Waves of a day and of some minutes; now, all of them are in the middle."""
    day = 1 + 0.5 * math.sin(age_s / _DAY_S * 2 * math.pi)
    wave = 1 + 0.25 * math.sin(age_s / 700) + 0.1 * math.sin(age_s / 130)
    pace = day * wave * random.uniform(0.95, 1.05)
    slow = 1 + 2 * max(0.0, math.sin(age_s / 2_300) - 0.6)
    come, finished = (rate * pace for rate in rates)
    return {
        "depth": float(int(depth * day * wave * slow)), "in_flight": float(int(finished * 0.02)), "deferred": 0.0,
        "message_rate": come, "finish_rate": finished / slow, "requeue_rate": finished * 0.02 * wave,
        "timeout_rate": 0.004 * finished * (slow - 1),
        "latency_0": 9e6 * slow * wave, "latency_1": 4e6 * slow * wave, "latency_2": 8e5 * wave,
    }  # fmt: skip
