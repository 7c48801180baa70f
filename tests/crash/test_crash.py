"""Acknowledged means kept: nsqd is killed or stopped under load, again and again, and nothing may be lost.

Two publishers (PUB, MPUB) note what was answered OK; a consumer finishes most of what it gets and requeues
some. After the last restart everything is drained, and the history of all lives is judged.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.background import Background
from tests.support.ledger import Bodies, History, judge
from tests.support.nsqd_process import NsqdProcess, is_ours, wait_until
from tests.support.tally import Tally
from tests.support.wire import Client, Closed

TOPIC, CHANNEL = "crash", "channel"
DATA_DIRECTORIES, KILLS_EACH = 5, 11
STOPS = 6
BATCH = 20
RDY = 100
LOAD_S = (0.05, 0.6)
LONG_LIFE, LONG_LOAD_S = 4, 1.5  # what is finished early in this life must not come again
# What consumers did is written at the latest after 0.1 s, with some room for a busy machine.
JOURNAL_WRITTEN_S = 0.6
FLAGS = ("--max-bytes-per-file=1048576", "--mem-queue-size=2000", "--msg-timeout=60s")


class Load(Background):
    """The clients of one life of nsqd: started together, they end by themselves when it dies."""

    def __init__(self, nsqd: NsqdProcess, history: History, bodies: Bodies, seed: int, life: int) -> None:
        clients = self._publish_singles, self._publish_batches, self._consume
        super().__init__(*(partial(self._run, client, f"{client.__name__.strip('_')}-{life}") for client in clients))
        self._nsqd = nsqd
        self._history = history
        self._bodies = bodies
        self._random = random.Random(seed + life)

    def wait_until_stored(self) -> None:
        """Return when one more batch is acknowledged."""
        before = self._history.acknowledged
        wait_until(lambda: self._history.acknowledged > before, what="a batch to be stored")

    def _run(self, client: Callable[[Client, str], None], name: str) -> None:
        with contextlib.suppress(Closed, ConnectionError), self._nsqd.connect() as connection:
            client(connection, name)

    def _publish_singles(self, client: Client, name: str) -> None:
        """One at a time, and now and then several in one send."""
        while True:
            batch = self._bodies.take(1 if self._random.random() < 0.8 else 10)
            publishes = [self._history.sending(TOPIC, [body], name) for body in batch]
            client.send(*(wire.pub(TOPIC, body) for body in batch))
            for publish in publishes:
                self._expect_ok(client, publish)

    def _publish_batches(self, client: Client, name: str) -> None:
        while True:
            batch = self._bodies.take(BATCH)
            publish = self._history.sending(TOPIC, batch, name)
            client.send(wire.mpub(TOPIC, batch))
            self._expect_ok(client, publish)

    def _expect_ok(self, client: Client, publish: int) -> None:
        frame = client.next_frame()
        if frame.kind == wire.ERROR and b"exiting" in frame.data:
            self._history.refused(publish, frame.data.decode())
            raise Closed
        assert frame == wire.OK, frame
        self._history.ok(publish)

    def _consume(self, client: Client, name: str) -> None:
        """FINs most; requeues some, a part of them with a delay; asks now and then what was processed."""
        client.sub(TOPIC, CHANNEL, rdy_count=RDY)
        sent = 0
        while True:
            message = client.message()
            delivery = self._history.received(TOPIC, CHANNEL, message, name)
            if self._random.random() < 0.1:
                delay_ms = self._random.choice((0, 50, 500))
                answer = self._history.req(delivery, delay_ms)
                client.send(wire.req(message.id, delay_ms))
            else:
                answer = self._history.fin(delivery)
                client.fin(message)
            sent += 1
            if sent % 50 == 0:
                client.round_trip()
                self._history.processed(name, answer)


def drain(nsqd: NsqdProcess, history: History) -> None:
    """Finish everything that is left; nothing comes twice."""
    nsqd.wait_for_channel(TOPIC, CHANNEL, deferred_count=0)
    messages = nsqd.consume_all(TOPIC, CHANNEL)
    for message in messages:
        history.fin(history.received(TOPIC, CHANNEL, message, "drain"))
    assert len(messages) == len({message.id for message in messages})
    nsqd.wait_for_channel(TOPIC, CHANNEL, depth=0, in_flight_count=0, deferred_count=0)
    history.drained(TOPIC, CHANNEL)


def nsqd_on(data_path: Path) -> NsqdProcess:
    return NsqdProcess(data_path, *FLAGS).start()


def live(nsqd: NsqdProcess, history: History, seed: int, lives: int, end: Callable[[], object]) -> None:
    """`lives` times: load nsqd, end it at a random moment, and start it again. Drain what is left then."""
    moments = random.Random(seed)
    bodies = Bodies()
    nsqd.create(TOPIC, CHANNEL)
    history.created(TOPIC, CHANNEL)
    for life in range(lives):
        with Load(nsqd, history, bodies, seed, life) as load:
            load.wait_until_stored()
            # A random moment is the point.
            time.sleep(LONG_LOAD_S if life == LONG_LIFE else moments.uniform(*LOAD_S))
            end()
        history.started()
        nsqd.start()
    drain(nsqd, history)


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
    history = History(tmp_path / "history.jsonl")
    with nsqd_on(tmp_path / "nsqd") as nsqd:
        live(nsqd, history, seed, KILLS_EACH, lambda: (history.killed(), nsqd.kill()))
    verdict = judge(history, journal_delay_s=JOURNAL_WRITTEN_S)
    tally(kills=KILLS_EACH, **verdict.counts())
    for name, figure in ("seed", seed), ("delivered_after_fin_sent", verdict.after_fin), *verdict.counts().items():
        record_property(name, figure)
    print(*verdict.lines(), sep="\n")
    verdict.require_sound()


@pytest.mark.crash
def test_stopped_under_load_loses_and_repeats_nothing(
    tmp_path: Path, tally: Tally, record_property: Callable[[str, object], None]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    history = History(tmp_path / "history.jsonl")

    def stop() -> None:
        assert nsqd.stop() == 0
        history.stopped()

    with nsqd_on(tmp_path / "nsqd") as nsqd:
        live(nsqd, history, seed, STOPS, stop)
    # Go's nsqd delivers in another order, and does not keep deferrals over a restart.
    verdict = judge(history, without=() if is_ours() else ("reordered", "early"))
    record_property("seed", seed)
    record_property("acknowledged", verdict.acknowledged)
    tally(**verdict.counts())
    print(*verdict.lines(), sep="\n")
    verdict.require_sound()
