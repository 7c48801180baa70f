"""Failovers in a row under load, with kills of either side at random moments: nothing acknowledged is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledger import History, compare, judge
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    LoadedPublisher,
    consume_all,
    drain_into,
    is_primary,
    promote,
    standby_of,
    wait_until_it_follows,
)

pytestmark = [pytest.mark.ours, pytest.mark.slow, pytest.mark.crash]

FLAGS = ("--standby-acks=1", "--standby-timeout=60s", "--max-bytes-per-file=300000")
ROUNDS = 6


class Pair:
    """Two nsqds that take turns as primary."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.flags = (*FLAGS, *flags)
        self.primary = NsqdProcess(directory / "a", *self.flags).start()
        self.standby = standby_of(self.primary, directory / "b", *self.flags)

    def fail_over(self, chance: random.Random) -> None:
        """Kills the primary, promotes the standby, and lets the old primary follow it."""
        self.primary.kill()
        if chance.random() < 0.3:
            self.standby.kill()
            promoted = NsqdProcess(self.standby.data_path, "--promote", *self.flags).start()
        else:
            promote(self.standby)
            promoted = self.standby
        old, self.primary = self.primary, promoted
        self.standby = standby_of(promoted, old.data_path, *self.flags)

    def destroy(self) -> None:
        self.primary.destroy()
        self.standby.destroy()


@pytest.fixture(params=["--sync-every=2500", "--sync-every=1"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path, request.param)
    yield pair
    pair.destroy()


@pytest.mark.parametrize("seed", range(4))
def test_nothing_acknowledged_is_lost(pair: Pair, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    history = History(tmp_path / "history.jsonl")
    pair.primary.create("t", "c")
    history.created("t", "c")
    for turn in range(ROUNDS):
        publishers = [
            LoadedPublisher(history, pair.primary, "t", f"{turn}-{number}", batch=chance.choice((1, 1, 20)))
            for number in range(4)
        ]
        for publisher in publishers:
            publisher.start()
        wait_until(lambda: all(publisher.acknowledged for publisher in publishers), DEADLINE_S)  # noqa: B023
        time.sleep(chance.random() / 2)  # the moment of the kill is random
        if chance.random() < 0.4:
            pair.standby.kill()
            pair.standby.start()
            wait_until_it_follows(pair.standby)
        pair.fail_over(chance)
        for publisher in publishers:
            publisher.end()
    drain_into(history, pair.primary, "t", "c")
    judge(history).require_sound()
    assert history.acknowledged > 50


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_during_the_promotion(tmp_path: Path, seed: int) -> None:
    """The standby is killed at a random moment of its promotion, again and again: then it is a standby or a primary."""
    chance = random.Random(seed)
    primary = NsqdProcess(tmp_path / "a", "--accept-standbys").start()
    primary.create("t", "c")
    messages = [b"%d" % number for number in range(100)]
    with primary.connect() as client:
        client.mpub("t", messages)
    standby = standby_of(primary, tmp_path / "b")
    primary.kill()
    with standby:
        for _ in range(8):
            standby.post("/promote")
            time.sleep(chance.random() * 0.06)  # the moment of the kill is random
            standby.kill()
            standby.start()
            if is_primary(standby):
                break
        else:
            promote(standby)
        compare(messages, consume_all(standby, "t", "c")).require_sound()
