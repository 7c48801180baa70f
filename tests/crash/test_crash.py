"""Acknowledged means kept: nsqd is killed or stopped under load, again and again, and nothing may be lost.

Two publishers (PUB, MPUB) note what was answered OK; a consumer finishes most of what it gets and requeues
some. After the last restart everything is drained and compared.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.background import Background
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.tally import Tally
from tests.support.wire import Client, Closed, Message, bodies

TOPIC, CHANNEL = "crash", "channel"
DATA_DIRECTORIES, KILLS_EACH = 5, 11
STOPS = 6
BATCH = 20
RDY = 100
LOAD_S = (0.05, 0.6)
# What consumers did is written at the latest after 0.1 s, with some room for a busy machine.
JOURNAL_WRITTEN_S = 0.6
FLAGS = ("--max-bytes-per-file=1048576", "--mem-queue-size=2000", "--msg-timeout=60s")


class Ledger:
    """What the clients know, over all lives of one nsqd. Each part is written by one thread at a time.

    A message that comes again after its FIN counts as not finished any more: it has to come until it is.
    """

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self.fin_sent: set[bytes] = set()
        # When, and in which life: a message may come again several lives later, when its turn comes.
        self.fin_processed: dict[bytes, tuple[float, int]] = {}
        self.life = 0
        self.kills: list[float] = []
        self.came_after_fin_sent = 0
        self.came_after_fin_processed: list[bytes] = []
        self.came_long_after_fin: list[bytes] = []
        self._numbers = itertools.count()

    def next_bodies(self, count: int) -> list[bytes]:
        """Bodies that were never used before; of several sizes, so that records end anywhere."""
        numbers = itertools.islice(self._numbers, count)
        return [b"%09d" % number + b"x" * (number * 37 % 400) for number in numbers]

    def wait_for_load(self) -> None:
        """Return when one more batch is acknowledged."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > before, what="a batch to be stored")

    def delivered(self, message: Message) -> None:
        body = message.body
        if body not in self.fin_sent:
            return
        self.fin_sent.remove(body)
        processed = self.fin_processed.pop(body, None)
        if processed is None:
            self.came_after_fin_sent += 1
            return
        self.came_after_fin_processed.append(body[:9])
        when, life = processed
        if when < self.kills[life] - JOURNAL_WRITTEN_S:
            self.came_long_after_fin.append(body[:9])

    @property
    def lost(self) -> list[bytes]:
        """The numbers of what was acknowledged, was never finished, and was not there to drain in the end."""
        return sorted(body[:9] for body in self.acknowledged - self.fin_sent)


class Load(Background):
    """The clients, while nsqd lives: started together, they end by themselves when it dies."""

    def __init__(self, nsqd: NsqdProcess, ledger: Ledger, seed: int) -> None:
        clients = self._publish_singles, self._publish_batches, self._consume
        super().__init__(*(partial(self._run, client) for client in clients))
        self._nsqd = nsqd
        self._ledger = ledger
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def _run(self, client: Callable[[Client], None]) -> None:
        with contextlib.suppress(Closed, ConnectionError), self._nsqd.connect() as connection:
            client(connection)

    def _take_bodies(self, count: int) -> list[bytes]:
        with self._lock:
            return self._ledger.next_bodies(count)

    def _publish_singles(self, client: Client) -> None:
        """One at a time, and now and then several in one send."""
        while True:
            batch = self._take_bodies(1 if self._random.random() < 0.8 else 10)
            client.send(*(wire.pub(TOPIC, body) for body in batch))
            for body in batch:
                self._expect_ok(client)
                self._ledger.acknowledged.add(body)

    def _publish_batches(self, client: Client) -> None:
        while True:
            batch = self._take_bodies(BATCH)
            client.send(wire.mpub(TOPIC, batch))
            self._expect_ok(client)
            self._ledger.acknowledged.update(batch)

    @staticmethod
    def _expect_ok(client: Client) -> None:
        frame = client.next_frame()
        if frame.kind == wire.ERROR and b"exiting" in frame.data:
            raise Closed
        assert frame == wire.OK, frame

    def _consume(self, client: Client) -> None:
        """FINs most; requeues some, a part of them with a delay; asks now and then what was processed."""
        client.sub(TOPIC, CHANNEL, rdy_count=RDY)
        sent: list[bytes] = []
        while True:
            message = client.message()
            self._ledger.delivered(message)
            choice = self._random.random()
            if choice < 0.1:
                client.send(wire.req(message.id, self._random.choice((0, 50, 500))))
                continue
            self._ledger.fin_sent.add(message.body)
            client.fin(message)
            sent.append(message.body)
            if len(sent) >= 50:
                client.round_trip()
                self._ledger.fin_processed.update(dict.fromkeys(sent, (time.monotonic(), self._ledger.life)))
                sent.clear()


def drain(nsqd: NsqdProcess, ledger: Ledger) -> list[bytes]:
    """Everything that is left, finished."""
    nsqd.wait_for_channel(TOPIC, CHANNEL, deferred_count=0)
    messages = nsqd.consume_all(TOPIC, CHANNEL)
    for message in messages:
        ledger.delivered(message)
        ledger.fin_sent.add(message.body)
    return bodies(messages)


def nsqd_on(data_path: Path) -> NsqdProcess:
    return NsqdProcess(data_path, *FLAGS).start()


def live(nsqd: NsqdProcess, ledger: Ledger, seed: int, lives: int, end: Callable[[], object]) -> list[bytes]:
    """`lives` times: load nsqd, end it at a random moment, and start it again. Return what is left to drain then."""
    moments = random.Random(seed)
    nsqd.create(TOPIC, CHANNEL)
    for ledger.life in range(lives):
        with Load(nsqd, ledger, seed + ledger.life):
            ledger.wait_for_load()
            time.sleep(moments.uniform(*LOAD_S))  # a random moment is the point
            end()
        nsqd.start()
    drained = drain(nsqd, ledger)
    nsqd.wait_for_channel(TOPIC, CHANNEL, depth=0, in_flight_count=0, deferred_count=0)
    return drained


@pytest.mark.ours
@pytest.mark.crash
@pytest.mark.parametrize(
    "directory", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, DATA_DIRECTORIES))]
)
def test_killed_under_load_loses_nothing(
    tmp_path: Path, directory: int, tally: Tally, record_property: Callable[[str, object], None]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    ledger = Ledger()
    with nsqd_on(tmp_path / "nsqd") as nsqd:
        live(nsqd, ledger, seed, KILLS_EACH, lambda: (ledger.kills.append(time.monotonic()), nsqd.kill()))
    statistics = {
        "seed": seed,
        "acknowledged": len(ledger.acknowledged),
        "lost": len(ledger.lost),
        "delivered_after_fin_sent": ledger.came_after_fin_sent,
        "delivered_after_fin_processed": len(ledger.came_after_fin_processed),
        "delivered_long_after_fin": len(ledger.came_long_after_fin),
    }
    print(statistics)
    doubled = ledger.came_after_fin_sent + len(ledger.came_after_fin_processed)
    tally(kills=KILLS_EACH, acknowledged=len(ledger.acknowledged), lost=len(ledger.lost), doubled=doubled)
    for name, figure in statistics.items():
        record_property(name, figure)
    assert not ledger.lost
    assert not ledger.came_long_after_fin


@pytest.mark.crash
def test_stopped_under_load_loses_and_repeats_nothing(
    tmp_path: Path, tally: Tally, record_property: Callable[[str, object], None]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    ledger = Ledger()
    statuses: list[int] = []
    with nsqd_on(tmp_path / "nsqd") as nsqd:
        drained = live(nsqd, ledger, seed, STOPS, lambda: statuses.append(nsqd.stop()))
    assert set(statuses) == {0}
    record_property("seed", seed)
    record_property("acknowledged", len(ledger.acknowledged))
    tally(acknowledged=len(ledger.acknowledged), lost=len(ledger.lost), doubled=len(drained) - len(set(drained)))
    print(f"acknowledged {len(ledger.acknowledged)}, finished under load {len(ledger.fin_processed)}")
    assert not ledger.lost
    assert not ledger.came_after_fin_processed
    assert len(drained) == len(set(drained))
