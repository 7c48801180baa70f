"""Failovers in a row under load, with kills of either side at random moments: nothing acknowledged is lost."""

from __future__ import annotations

import random
import time

import pytest

from tests.support.ledger import History, compare, judge
from tests.support.nsqd_process import wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    LoadedPublisher,
    consume_all,
    drain_into,
    is_primary,
    promote,
    wait_until_it_follows,
)

pytestmark = [pytest.mark.ours, pytest.mark.slow, pytest.mark.crash]

FLAGS = ("--standby-acks=1", "--standby-timeout=60s", "--max-bytes-per-file=300000")
ROUNDS = 6


@pytest.mark.parametrize("sync_every", [2500, 1])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_acknowledged_is_lost(start, follow, tmp_path, sync_every, seed):
    chance = random.Random(seed)
    flags = (*FLAGS, f"--sync-every={sync_every}")
    primary = start("a", *flags)
    standby = follow(primary, *flags)
    history = History(tmp_path / "history.jsonl")
    primary.create("t", "c")
    history.created("t", "c")
    for turn in range(ROUNDS):
        publishers = [
            LoadedPublisher(history, primary, "t", f"{turn}-{number}", batch=chance.choice((1, 1, 20)))
            for number in range(4)
        ]
        for publisher in publishers:
            publisher.start()
        wait_until(lambda: all(publisher.acknowledged for publisher in publishers), DEADLINE_S)  # noqa: B023
        time.sleep(chance.random() / 2)  # the moment of the kill is random
        if chance.random() < 0.4:
            standby.restart(clean=False)
            wait_until_it_follows(standby)
        primary.kill()
        old = primary
        if chance.random() < 0.3:
            standby.kill()
            primary = start(standby.data_path.name, "--promote", *flags)
        else:
            promote(standby)
            primary = standby
        standby = follow(primary, *flags, name=old.data_path.name)
        for publisher in publishers:
            publisher.end()
    drain_into(history, primary, "t", "c")
    judge(history).require_sound()
    assert history.acknowledged > 50


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_during_the_promotion(start, follow, seed):
    """The standby is killed at a random moment of its promotion, again and again: then it is a standby or a primary."""
    chance = random.Random(seed)
    primary = start("a", "--accept-standbys")
    primary.create("t", "c")
    messages = [b"%d" % number for number in range(100)]
    primary.publish("t", messages)
    standby = follow(primary)
    primary.kill()
    for _ in range(8):
        standby.post("/promote")
        time.sleep(chance.random() * 0.06)  # the moment of the kill is random
        standby.restart(clean=False)
        if is_primary(standby):
            break
    else:
        promote(standby)
    compare(messages, consume_all(standby, "t", "c")).require_sound()
