"""A disk on which each call takes long: who publishes to it waits, and nobody else for more than one call."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.conftest import MakeFaulty
from tests.support.disk_calls import SYNCS, WRITES
from tests.support.faulty_nsqd import FaultyNsqd
from tests.support.nsqd_process import wait_until
from tests.support.tally import Tally
from tests.support.wire import bodies

pytestmark = pytest.mark.ours

ONE_CALL_S = 0.5  # on top of the call itself: a busy machine
OTHERWISE_S = 0.35  # likewise, on top of nothing
RUNS_FOR_S = 3.0
NOTHING_S = 0.05


class Waits:
    """How long each of many things took."""

    def __init__(self) -> None:
        self.took_s: list[float] = []

    @contextmanager
    def one(self) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self.took_s.append(time.monotonic() - began_s)

    def check(self, call_s: float) -> None:
        """One of them may have had to wait for a single call, and no other for anything."""
        *others, longest = sorted(self.took_s)
        assert longest < call_s + ONE_CALL_S
        assert others[-1] < OTHERWISE_S


class Neighbours:
    """Clients that want nothing of the disk: one asks for /ping, one consumes what is in memory."""

    def __init__(self, nsqd: FaultyNsqd, topic: str) -> None:
        self.pings = Waits()
        self.deliveries = Waits()
        self.consumed: list[bytes] = []
        self._nsqd = nsqd
        self._topic = topic
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ping), threading.Thread(target=self._consume)]

    def _ping(self) -> None:
        while not self._is_over.wait(0.01):
            with self.pings.one():
                assert self._nsqd.http("GET", "/ping").status == 200

    def _consume(self) -> None:
        with self._nsqd.connect() as consumer:
            consumer.sub(self._topic, "c", rdy_count=1)
            while not self._is_over.wait(0.01):
                with self.deliveries.one():
                    message = consumer.message()
                consumer.fin(message)
                self.consumed.append(message.body)

    def __enter__(self) -> Neighbours:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize(
    ("calls", "call_s", "every"),
    [(WRITES, 0.4, 2500), (WRITES + SYNCS, 1.5, 2500), (WRITES + SYNCS, 0.4, 1)],
    ids=["write", "write and sync", "sync-every=1"],
)
def test_only_publishers_wait(
    make_faulty: MakeFaulty, calls: tuple[str, ...], call_s: float, every: int, tally: Tally
) -> None:
    nsqd = make_faulty(f"--sync-every={every}", "--sync-timeout=100ms")
    for topic in ("first", "second", "calm"):
        nsqd.create(topic, "c")
    calm = [b"%d" % number for number in range(1000)]
    with nsqd.connect() as client:
        client.mpub("calm", calm)
        client.pub("first", b"before")
    sent: dict[str, list[bytes]] = {"first": [b"before"], "second": []}
    with Neighbours(nsqd, "calm") as neighbours, nsqd.connect() as first, nsqd.connect() as second:
        wait_until(lambda: len(neighbours.consumed) > 10)
        nsqd.set_rules(*({"call": call, "delay_s": call_s} for call in calls))
        began_s = time.monotonic()
        while time.monotonic() < began_s + RUNS_FOR_S:
            for client, topic in ((first, "first"), (second, "second")):
                body = b"%s %d" % (topic.encode(), len(sent[topic]))
                client.pub(topic, body)  # its answer comes when it is written
                sent[topic].append(body)
        nsqd.set_rules()
    neighbours.pings.check(call_s)
    neighbours.deliveries.check(call_s)
    assert neighbours.consumed == calm[: len(neighbours.consumed)]
    nsqd.restart(clean=False)
    for topic, expected in sent.items():
        with nsqd.connect() as client:
            client.sub(topic, "c", rdy_count=1000)
            assert bodies(client.drain(NOTHING_S)) == expected
    tally(kills=1, faults=1, acknowledged=sum(map(len, sent.values())), lost=0)
