"""Acknowledged means kept, whatever clients do: nsqd is killed in a loop under a mixed load, and its history is judged.

Each nsqd dies many times: under load, while it starts, and while it stops. After the last life everything is
consumed, and the checks of tests/support/ledger are applied to what the clients noted.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from nsqd_py.fsck.reading import load_directory
from nsqd_py.fsck.reports import DamageKind, Finding, finding_text
from tests.support.ledger import History, judge
from tests.support.ledger.cuts import Fate
from tests.support.ledger.story import JOURNAL_DELAY_S
from tests.support.mixed_load import Load, drain
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.operations import CHANNELS, OPERATIONS, plan, settle
from tests.support.tally import Tally

DIRECTORIES, KILLS_EACH = 6, 52
LONG_DEFER_MS, SHORT_DEFER_MS = 12_000, 1_000
LONG_LOAD_S, SHORT_LOAD_S = (0.05, 0.6), (0.05, 0.3)
STARTING_S = (0.02, 0.5)
STOPPING_S = (0.0, 0.05)
PER_KILL = 50  # messages at least, on average
SHOWN = 20
USUAL_LOAD = 4 * (os.cpu_count() or 1)
MOST_FILES = 2  # of a topic in which nothing waits
# How it dies: mostly under load.
DEATHS = ("under load",) * 8 + ("while starting", "while stopping")

# Small files, so that they come and go; a short time-out, so that what is held comes again.
FLAGS = (
    "--max-bytes-per-file=131072",
    "--mem-queue-size=500",
    "--msg-timeout=5s",
    "--retention-time=kept=1h",
)
TOPICS = (
    ("steady", 4, ("pause the topic", "pause a channel")),
    ("cleared", 3, ("empty the topic", "empty a channel", "pause the topic", "pause a channel")),
    ("made", 3, ("remake a channel", "remake the topic")),
    ("kept", 1, ("seek to the earliest", "seek to the latest", "seek to a time", "seek to a time")),
)


QUICK = (10, SHORT_DEFER_MS, SHORT_LOAD_S)
LONG = pytest.param(KILLS_EACH, LONG_DEFER_MS, LONG_LOAD_S, marks=pytest.mark.slow)


@pytest.mark.ours
@pytest.mark.crash
@pytest.mark.parametrize(("kills", "longest_defer_ms", "load_s"), [QUICK, *[LONG] * DIRECTORIES])
def test_kills_lose_nothing(tmp_path, kills, longest_defer_ms, load_s, tally):
    Torture(tmp_path, longest_defer_ms, load_s).run(kills, tally)


def test_a_message_that_an_undone_unpause_may_have_passed_on_need_not_be_emptied_with_the_topic():
    """A consumer may have finished a later one: then, after a kill, the topic stays paused and the channels have it."""
    history = History(clock_ns=time.time_ns)
    (topic,) = plan(history, (("cleared", 1, ()),))
    history.created("cleared", *CHANNELS)
    states = {"paused": True, "channels": [{"channel_name": name, "paused": False} for name in CHANNELS]}
    nsqd: Any = Mock(topic_stats=lambda _: states)

    def publish():
        history.ok(history.sending("cleared", topic.bodies.take(1)))

    def operate(name):
        OPERATIONS[name](nsqd, topic, random.Random(0))

    operate("pause the topic")
    publish()  # may be passed on
    nsqd.post.side_effect = ConnectionResetError
    with pytest.raises(ConnectionResetError):
        operate("pause the topic")
    nsqd.post.side_effect = None
    history.killed()
    history.started()
    settle(nsqd, [topic])
    publish()  # is held
    operate("empty the topic")
    story = judge(history).story
    passed_on, held = story.publishes.values()
    fates = [channel.fate(message) for channel in story.channels.values() for message in (passed_on, held)]
    assert fates == [Fate.MAY_COME, Fate.GONE] * len(CHANNELS)


def is_new_file(finding: Finding) -> bool:
    """True for a log file that was made a moment before the kill: it has no header yet."""
    return finding.trouble is DamageKind.UNREADABLE and not finding.end


class Torture:
    """One data directory, and the lives of the nsqds on it."""

    def __init__(self, directory: Path, longest_defer_ms: int, load_s: tuple[float, float]) -> None:
        self._seed = random.SystemRandom().randrange(2**32)
        self._chance = random.Random(self._seed)
        self._nsqd = NsqdProcess(directory / "nsqd", *FLAGS)
        self._history = History(directory / "history.jsonl", clock_ns=time.time_ns)
        self._topics = plan(self._history, TOPICS)
        self._kills = 0
        self._longest_defer_ms = longest_defer_ms
        self._load_s = load_s
        self._wrong: list[str] = []
        self._waiting_share = 1.0  # how much longer than usual processes wait for a processor

    def run(self, kills: int, tally: Tally) -> None:
        print(f"seed {self._seed}")
        with self._nsqd:
            self._start()
            for topic in self._topics:
                self._nsqd.create(topic.name, *CHANNELS)
                self._history.created(topic.name, *CHANNELS)
            while self._kills < kills:
                self._live(self._chance.choice(DEATHS))
            drain(self._nsqd, self._topics)
            self._nsqd.start()
            self._find_nothing_left()
        self._judge(kills, tally)

    def _start(self) -> None:
        self._history.started()
        self._nsqd.start()

    def _note_kill(self) -> None:
        self._history.killed()
        self._kills += 1
        self._waiting_share = max(self._waiting_share, os.getloadavg()[0] / USUAL_LOAD)

    def _live(self, death: str) -> None:
        """From one start to the next."""
        with Load(self._nsqd, self._topics, self._chance, self._longest_defer_ms):
            time.sleep(self._chance.uniform(*self._load_s))  # a random moment is the point, here and below
            wait_until(self._has_load, what="messages to be stored")  # where the machine is slow
            self._note_kill()
            if death == "while stopping":
                self._nsqd.signal(signal.SIGTERM)
                time.sleep(self._chance.uniform(*STOPPING_S))
            self._nsqd.kill()
        if death == "while starting":
            self._history.started()
            self._nsqd.launch()
            time.sleep(self._chance.uniform(*STARTING_S))
            self._note_kill()
            self._nsqd.kill()
        self._find_no_damage()
        self._start()
        self._wrong += settle(self._nsqd, self._topics)

    def _has_load(self) -> bool:
        return self._history.acknowledged > PER_KILL * (self._kills + 1)

    def _find_no_damage(self) -> None:
        """What is written is whole; but the system may end the last write of a killed process at the end of a page."""
        report = load_directory(self._nsqd.data_path, time.time_ns())[0]
        damage = [finding for finding in report.findings if finding.is_damage and not is_new_file(finding)]
        self._wrong += map(finding_text, damage)

    def _find_nothing_left(self) -> None:
        """What was finished before a clean stop does not come again, and its files go."""
        wait_until(lambda: self._files_kept() <= MOST_FILES * len(self._topics), what="the files to go")
        for topic in self._topics:
            stats = self._nsqd.topic_stats(topic.name)
            assert not any(channel["depth"] for channel in stats["channels"]), stats

    def _files_kept(self) -> int:
        return sum(not path.name.startswith("kept.") for path in self._nsqd.data_path.glob("*.log"))

    def _judge(self, kills: int, tally: Tally) -> None:
        # At load 30, nsqd has waited for a processor for half a second with what it was about to write down.
        verdict = judge(self._history, journal_delay_s=JOURNAL_DELAY_S * self._waiting_share)
        tally(kills=kills, **verdict.counts())
        print(*verdict.lines(), sep="\n")
        print(*self._wrong[:SHOWN], sep="\n")
        assert verdict.acknowledged > PER_KILL * kills, "there was no load"
        verdict.require_sound()
        assert self._wrong == []
