"""Dead letters, and nsqd killed while they move: none is lost, and few come twice.

A consumer requeues all it gets. What was acknowledged has to be in the topic of dead letters in the end, and what had
been there for a while when nsqd was killed is there once.
"""

from __future__ import annotations

import random
import select
import time

import pytest

from nsqd_py.diskqueue.journals.journal import read_journal
from tests.support.ledger import History, judge
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.wire import Client, req

pytestmark = pytest.mark.ours

TOPIC, DEAD = "jobs", "dead"
KILLS = 4
LOAD_S = (0.05, 0.15)
BATCH = 50
RDY = 500
FLAGS = ("--max-attempts=jobs=2", "--max-bytes-per-file=65536", "--mem-queue-size=100", "--msg-timeout=300ms")
TIME_TO_DIE_S = 30.0


@pytest.mark.parametrize(
    "sync",
    ["--sync-every=2500", pytest.param("--sync-every=1", marks=pytest.mark.slow)],
    ids=["default", "synced"],
)
def test_dead_letters_survive_kills(tmp_path, tally, sync):
    nsqd = NsqdProcess(tmp_path / "nsqd", *FLAGS, sync).start()
    numbers = random.Random(1)
    history = History(tmp_path / "history.jsonl")
    history.created(TOPIC, DEAD)
    with nsqd:
        for life in range(KILLS):
            publish_and_requeue(nsqd, history, life, numbers.uniform(*LOAD_S))
            if life % 2:  # in every other life all is quiet when it ends
                bury_the_rest(nsqd)
            history.killed()
            nsqd.kill()
            history.started()
            nsqd.start()
        bury_the_rest(nsqd)
        take_dead_letters(nsqd, history)
    # A dead letter is a publish of its own: killed between the two, nsqd makes it once more.
    verdict = judge(history, also=["twice"])
    doubled = verdict.of("twice")
    tally(kills=KILLS, acknowledged=verdict.acknowledged, lost=len(verdict.of("lost")), doubled=len(doubled))
    assert verdict.acknowledged >= BATCH * KILLS
    assert verdict.findings == doubled
    assert not [finding for finding in doubled if life_of(finding.body) % 2]


def life_of(body: str) -> int:
    return int(body.split(".")[0])


def publish_and_requeue(nsqd: NsqdProcess, history: History, life: int, load_s: float) -> None:
    """For a while, everything that comes."""
    ends_s = time.monotonic() + load_s
    number = 0
    with nsqd.connect() as publisher, nsqd.consumer(TOPIC, "c", RDY) as consumer:
        while time.monotonic() < ends_s or not number:
            messages = [b"%d.%06d" % (life, number + i) for i in range(BATCH)]
            publish = history.sending(TOPIC, messages, resends=True)
            publisher.mpub(TOPIC, messages)
            history.ok(publish)
            number += BATCH
            requeue_what_is_there(consumer)


def requeue_what_is_there(consumer: Client) -> None:
    if select.select([consumer], [], [], 0.001)[0]:
        consumer.send(*(req(message.id, 0) for message in consumer.arrived()))


def bury_the_rest(nsqd: NsqdProcess) -> None:
    """Requeue what is left, until nothing is, and that is written down."""
    with nsqd.consumer(TOPIC, "c", RDY) as consumer:

        def is_empty() -> bool:
            requeue_what_is_there(consumer)
            return nsqd.is_empty(TOPIC, "c")

        wait_until(is_empty, TIME_TO_DIE_S)
    topic = nsqd.http("GET", "/topic/log?topic=jobs").json()
    journal = nsqd.data_path / "jobs:c.cursor"
    wait_until(lambda: read_journal(journal.read_bytes()).saved.finished.floor == topic["next_seq"])


def take_dead_letters(nsqd: NsqdProcess, history: History) -> None:
    """Note all that is in the topic of dead letters, as what came to a channel of the topic."""
    nsqd.create("jobs.dead", "reader")
    depth = nsqd.channel_stats("jobs.dead", "reader")["depth"]
    with nsqd.consumer("jobs.dead", "reader", RDY) as reader:
        for message in reader.consume(depth):
            history.fin(history.delivered(TOPIC, DEAD, message.body, message_id=message.id))
    history.drained(TOPIC, DEAD)
