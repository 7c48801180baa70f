"""Bits that flip, cuts and removed files in either half of a pair, while publishers and a consumer work: nothing is lost."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.harm import flip
from tests.support.ledger import History, judge
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    drain_into,
    figures_of,
    promote,
    wait_until_it_follows,
    wait_until_it_has_all,
)
from tests.support.together import join_thread
from tests.support.wire import mpub

pytestmark = pytest.mark.ours

FLAGS = (
    "--standby-acks=1",
    "--standby-timeout=40s",
    "--max-bytes-per-file=100000",
    "--mem-queue-size=100",
    "--scrub-rate=100MB",
)
FLIPS_AT_ONCE = 40
PACE_S = 0.002
SCRUBBED_S = 400.0  # while the disk is slow, a scrub reads a file a second
# The other half has what is further from the end of the log than this.
ON_THE_WAY_BYTES = 32 * 1024


class Pair:
    """A primary and its standby, and the faults that were injected into each."""

    def __init__(self, primary: NsqdProcess, standby: NsqdProcess, seed: int) -> None:
        self.primary = primary
        self.standby = standby
        self.picks = random.Random(seed)
        self.flips = self.changes = 0

    def flip(self) -> None:
        """Flip bits in the files of one half, and wait until they are what they were."""
        half = self.picks.choice([self.primary, self.standby])
        before = self.repaired_bytes(half)
        for _ in range(FLIPS_AT_ONCE):
            path = self.picks.choice(closed_logs(half))
            flip(path, self.picks.randrange(path.stat().st_size), mask=1 << self.picks.randrange(8))
            self.flips += 1
        wait_until(lambda: self.repaired_bytes(half) > before, SCRUBBED_S, "a repair")
        self.wait_until_sound()

    def change(self, how: str) -> None:
        """Cut or remove a file of one half, and wait until it is back, and was counted."""
        half = self.picks.choice([self.primary, self.standby])
        path = self.picks.choice(closed_logs(half))
        size_bytes, before = path.stat().st_size, self.count(half)
        if how == "cut":
            os.truncate(path, self.picks.randrange(size_bytes - ON_THE_WAY_BYTES))
        else:
            path.unlink()
        self.changes += 1
        what = f"{path.name} of {half.data_path.name}, which was {how}"
        wait_until(lambda: self.count(half) > before, SCRUBBED_S, f"the count of {what}")
        wait_until(
            lambda: path.exists() and path.stat().st_size > size_bytes - ON_THE_WAY_BYTES, SCRUBBED_S, what
        )
        self.wait_until_sound()

    def count(self, half: NsqdProcess) -> int:
        """What the half counts: files that another program changed, and bytes that the scrub found first."""
        files = (
            figures_of(half)["changed_files"]
            if half is self.standby
            else half.topic_stats("t").get("removed_files", 0)
        )
        return files + half.stats()["scrub"]["damaged_bytes"]

    def repaired_bytes(self, half: NsqdProcess) -> int:
        return half.stats()["scrub"]["repaired_bytes"]

    def wait_until_sound(self) -> None:
        """Wait until both halves have read all of their files, and nothing is damaged any more."""
        before = [half.stats()["scrub"]["passes"] for half in (self.primary, self.standby)]

        scrubs: list[dict[str, Any]] = []

        def is_sound() -> bool:
            scrubs[:] = [half.stats()["scrub"] for half in (self.primary, self.standby)]
            are_new = all(scrub["passes"] >= passes + 2 for scrub, passes in zip(scrubs, before, strict=True))
            return are_new and all(scrub["damaged_bytes"] == scrub["repaired_bytes"] for scrub in scrubs)

        try:
            wait_until(is_sound, SCRUBBED_S, "both halves to be sound")
        except AssertionError as error:
            error.add_note(f"passes before: {before}, scrubs: {scrubs}, standby: {figures_of(self.standby)}")
            raise
        wait_until_it_follows(self.standby)


def closed_logs(nsqd: NsqdProcess) -> list[Path]:
    """Its log files, without the last ones, whose end the other half may lack for a moment."""
    paths = sorted(nsqd.data_path.glob("t.*.log"))
    while len(paths) > 1 and sum(path.stat().st_size for path in paths[-1:]) < ON_THE_WAY_BYTES:
        paths.pop()
    return paths[:-1]


class Publisher(threading.Thread):
    """Publishes at a pace that leaves the disk small, until `ended` is set; not while there are more than `most_files`."""

    def __init__(self, history: History, nsqd: NsqdProcess, name: str, batch: int, most_files: int) -> None:
        super().__init__(daemon=True)
        self.refused: list[bytes] = []
        self.ended = threading.Event()
        self._history = history
        self._client = nsqd.connect()
        self._nsqd = nsqd
        self._name = name
        self._batch = batch
        self._most_files = most_files

    def run(self) -> None:
        number = 0
        while not self.ended.wait(PACE_S):
            if number % 100 < self._batch and len(closed_logs(self._nsqd)) > self._most_files:
                self.ended.wait(0.2)
                continue
            messages = [f"{self._name}-{number + i}".encode() for i in range(self._batch)]
            number += self._batch
            publish = self._history.sending("t", messages, self._name)
            answer = self._client.ask(mpub("t", messages)).data
            if answer == b"OK":
                self._history.ok(publish)
            else:
                self._history.refused(publish, answer.decode())
                self.refused.append(answer)
        self._client.close()


class Consumer(threading.Thread):
    """Finishes what a channel has, until its connection ends."""

    def __init__(self, history: History, nsqd: NsqdProcess, channel: str) -> None:
        super().__init__(daemon=True)
        self._history = history
        self._channel = channel
        self._client = nsqd.connect()
        self._client.sub("t", channel, 50)

    def run(self) -> None:
        try:
            while True:
                message = self._client.message()
                self._history.fin(self._history.received("t", self._channel, message, "consumer"))
                self._client.fin(message)
        except Exception:  # noqa: BLE001 - the connection ended: that is what it waits for
            return


@pytest.mark.calm  # a scrub reads little while the disk is slow
@pytest.mark.parametrize(
    ("rounds", "promotes", "most_files"),
    [
        (2, True, 10),
        pytest.param(25, False, 10_000, marks=pytest.mark.slow),
        pytest.param(25, True, 10_000, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost(rounds, promotes, most_files, start, follow, tmp_path, tally):
    primary = start("a", *FLAGS)
    standby = follow(primary, *FLAGS)
    primary.create("t", "fast", "slow")
    history = History(tmp_path / "history.jsonl")
    history.created("t", "fast", "slow")
    publishers = [
        Publisher(history, primary, f"p{number}", 1 + 9 * number, most_files) for number in range(3)
    ]
    for publisher in publishers:
        publisher.start()
    wait_until(
        lambda: len(closed_logs(primary)) >= 3 and len(closed_logs(standby)) >= 3, DEADLINE_S, "some files"
    )
    consumer = Consumer(history, primary, "fast")
    consumer.start()
    pair = Pair(primary, standby, seed=rounds)
    for _ in range(rounds):
        pair.flip()
        pair.change(pair.picks.choice(["cut", "removed"]))
    for publisher in publishers:
        publisher.ended.set()
        join_thread(publisher, DEADLINE_S)
        assert publisher.refused == []
    if promotes:
        wait_until_it_has_all(primary)
        history.killed()
        primary.kill()
        history.started()
        promote(standby)
    else:
        assert primary.stop() == 0
        history.stopped()
        history.started()
        primary.start()
    join_thread(consumer, DEADLINE_S)
    survivor = standby if promotes else primary
    for channel in ("fast", "slow"):
        drain_into(history, survivor, "t", channel)
        assert "lost_count" not in survivor.channel_stats("t", channel)
    # Consumers get what is around the damage at once, and what is in it when it is repaired.
    verdict = judge(history, without=["reordered"]).require_sound()
    tally(faults=pair.flips + pair.changes, **verdict.counts())
