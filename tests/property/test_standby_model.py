"""A standby's copy compared with what the primary promised, wherever the stream ends."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.standby import messages
from nsqd_py.standby.copies.data_path import StandbyState
from nsqd_py.standby.primary import Standbys
from nsqd_py.standby.role import promote
from tests.support.broker_life import CHANNELS, TOPIC, Life, work
from tests.support.examples import examples
from tests.support.standby_link import StandbyLink, replay
from tests.unit.fakes import SECOND, FakeThreadPool, close_descriptors
from tests.unit.log_bench import read_all

Event = tuple[Any, ...]
STANDBY_OPTIONS = {
    "standby_acks": 1,
    "standby_timeout_ns": 10**6 * SECOND,
    "standby_on_timeout": "refuse",
    "max_bytes_per_file": 3000,
}


class Backup(NamedTuple):
    directory: Path
    link: StandbyLink
    began: int  # the number of events by then


class Primary(Life):
    """A life of a broker that a standby follows, with more that may happen: compaction, pauses, lost connections."""

    def __init__(self, directory: Path, copy_directory: Path, chance: random.Random) -> None:
        self.sent: list[bytes | None] = []
        self.events: list[tuple[int, Event]] = []
        super().__init__(
            directory, lambda *event: self.events.append((len(self.sent), event)), **STANDBY_OPTIONS
        )
        self.broker.additions.take_role(Standbys(self.broker, directory, FakeThreadPool()))
        self._copy_directory = copy_directory
        self._chance = chance
        self._is_busy = False
        self.backups: list[Backup] = []
        self.link = self._connect()

    def _connect(self) -> StandbyLink:
        return StandbyLink(self.broker.replication, self._copy_directory, self.sent).connect()

    def settle(self, rounds: int = 4) -> None:
        super().settle(rounds)
        if self._is_busy or not hasattr(self, "link"):
            return
        self._is_busy = True
        choice = self._chance.random()
        topic = self.broker.topics.get(TOPIC)
        if topic is not None and choice < 0.15:
            self.broker.housekeeper.run()
        elif topic is not None and choice < 0.2:
            self.broker.pause_topic(topic, not topic.is_paused)
        elif choice < 0.25:
            self.link.end()
            super().settle(rounds)
            self.link = self._connect()
        elif choice < 0.3 and all(backup.link.is_over for backup in self.backups):
            for backup in self.backups:
                backup.link.end()
            directory = self._copy_directory.with_name(f"backup{len(self.backups)}")
            directory.mkdir()
            link = StandbyLink(self.broker.replication, directory, [], is_backup=True)
            self.backups.append(Backup(directory, link, len(self.events)))
            link.connect()
        super().settle(rounds)
        self._is_busy = False

    def come_to_rest(self) -> None:
        """Let the standby get everything; nothing else happens any more."""
        self._is_busy = True
        self.pass_time(SECOND)
        self.pass_time(2 * SECOND)

    def first_copy(self) -> int:
        """The number of messages that the first copy took."""
        return next(place for place, data in enumerate(self.sent) if data and data[0] == messages.ROUND) + 1


def promoted(directory: Path) -> Life:
    """A life of the broker that a promotion makes of a copy."""
    life = Life(directory, lambda *_: None)
    promote(life.broker, directory, StandbyState("primary:4150", True))
    return life


def remaining(life: Life) -> dict[str, list[bytes]]:
    """What the channels have, also what is paused or deferred."""
    topic = life.broker.get_topic(TOPIC)
    if topic.is_paused:
        life.broker.pause_topic(topic, False)
    found = {name: sorted(life.drain(name)) for name in CHANNELS}
    life.end()
    return found


def log_of(life: Life) -> Any:
    return life.broker.topics[TOPIC].log


def check_copy(primary: Life, copy_directory: Path) -> None:
    """The log files of a standby that has everything are those of the primary, byte for byte."""
    log = log_of(primary)
    assert {path.name for path in copy_directory.glob("*.log")} == {file.path.name for file in log.files}
    for file in log.files:
        assert (copy_directory / file.path.name).read_bytes() == file.read(0, file.end_offset), file.path.name
    # Whatever the primary dropped, replaced or moved was finished, or is in another file.
    assert not was_removed(copy_directory)


def was_removed(directory: Path) -> list[Path]:
    """What a standby set aside since it left in the name of its primary; not what it kept when it began to follow."""
    return list(directory.glob("standby-removed-????????*/*.log"))


def check_cut(primary: Primary, cut: int, directory: Path) -> None:
    """A standby that got only the first `cut` messages has what was acknowledged by then and not finished."""
    directory.mkdir()
    replay(primary.sent[:cut], directory)
    found = remaining(promoted(directory))
    for name in CHANNELS:
        owed = owed_to(name, [event for at, event in primary.events if at <= cut])
        assert owed <= set(found[name]), name


def owed_to(name: str, events: list[Event]) -> set[bytes]:
    """What was acknowledged, and is neither finished by the channel nor emptied."""
    owed, finished = set[bytes](), set[bytes]()
    for kind, *of in events:
        if kind == "acknowledged":
            owed.update(of)
        elif kind == "finished" and of[0] == name:
            finished.update(of[1:])
        elif kind == "emptied" and of[0] == name:
            owed.clear()
    return owed - finished


def check_backup(primary: Primary, backup: Backup) -> None:
    """It has what was acknowledged before it began and is not finished, and nothing is missing in its logs."""
    life = Life(backup.directory, lambda *_: None)
    found = remaining(life)
    assert life.world.log.warnings == []
    events = [event for _, event in primary.events]
    later = [event for event in events[backup.began :] if event[0] != "acknowledged"]
    for name in CHANNELS:
        assert owed_to(name, events[: backup.began] + later) <= set(found[name]), name


def run(seed: int, steps: int, base: Path) -> None:
    chance = random.Random(seed)
    for name in ("primary", "copy"):
        (base / name).mkdir()
    life = Primary(base / "primary", base / "copy", chance)
    life.create()
    life.settle()
    work(life, chance, steps)
    life.come_to_rest()
    check_copy(life, base / "copy")
    # A first copy that ended anywhere goes on from there.
    (base / "begun").mkdir()
    replay(life.sent[: chance.randint(1, life.first_copy())], base / "begun")
    begun = StandbyLink(life.broker.replication, base / "begun", []).connect()
    life.come_to_rest()
    check_copy(life, base / "begun")
    begun.end()
    for backup in life.backups:
        assert backup.link.is_over
        backup.link.end()
    life.link.end()
    life.end()
    close_descriptors(base)

    moments = [at for at, event in life.events if event[0] == "acknowledged" and at >= life.first_copy()]
    cuts = {*chance.sample(moments, min(4, len(moments))), chance.randint(life.first_copy(), len(life.sent))}
    for cut in cuts:
        check_cut(life, cut, base / f"cut{cut}")
    for backup in life.backups:
        check_backup(life, backup)
    # When everything has arrived, a standby continues where its primary would.
    assert remaining(promoted(base / "copy")) == remaining(Life(base / "primary", lambda *_: None))


def numbers_of(life: Life) -> set[int]:
    """The numbers of the messages that are in the log."""
    log = log_of(life)
    return {number for number, _ in read_all(log, log.files[0].first_seq if log.files else log.next_seq)}


def come_back(seed: int, steps: int, base: Path) -> None:
    """A standby is promoted at any moment. Its primary was killed, follows it, and sets aside what it had alone."""
    chance = random.Random(seed)
    for name in ("primary", "copy", "new"):
        (base / name).mkdir()
    old = Primary(base / "primary", base / "copy", chance)
    old.create()
    old.settle()
    work(old, chance, steps)
    while len(old.sent) < old.first_copy() + 1:
        old.pass_time(SECOND)
    cut = chance.randint(old.first_copy(), len(old.sent))
    old_numbers = numbers_of(old)
    close_descriptors(base)

    replay(old.sent[:cut], base / "new")
    new = Life(base / "new", lambda *_: None, **STANDBY_OPTIONS)
    promote(new.broker, base / "new", StandbyState("primary:4150", True))
    new_end = new.broker.topics[TOPIC].next_seq
    new.broker.additions.take_role(Standbys(new.broker, base / "new", FakeThreadPool()))
    new.publish(*[b"new %d" % number for number in range(chance.randint(0, 30))] or [b"new"])
    new.settle()
    link = StandbyLink(new.broker.replication, base / "primary", [])
    link.copy.was_primary = True
    link.connect()
    for _ in range(3):
        new.pass_time(2 * SECOND)
    assert link.copy.departures.alone_count == sum(number >= new_end for number in old_numbers)
    check_copy(new, base / "primary")
    link.end()
    new.end()
    assert remaining(promoted(base / "primary")) == remaining(Life(base / "new", lambda *_: None))


def run_in_new_directory(run: Callable[[int, int, Path], None], seed: int, steps: int) -> None:
    base = Path(tempfile.mkdtemp())
    try:
        # A busy machine changes nothing in the order of events.
        with patch.object(WorkSlices, "sleep_if_due", lambda _: None):
            run(seed, steps, base)
    finally:
        close_descriptors(base)
        shutil.rmtree(base)


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 40))
@example(
    seed=2097153, steps=41
)  # two files are compacted into one while a channel has a message of the second one
def test_what_was_acknowledged_is_there_wherever_the_stream_ends(seed: int, steps: int) -> None:
    run_in_new_directory(run, seed, steps)


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 40))
def test_a_killed_primary_follows_the_standby_that_was_promoted(seed: int, steps: int) -> None:
    run_in_new_directory(come_back, seed, steps)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(20, 150))
def test_the_same_at_length(seed: int, steps: int) -> None:
    run_in_new_directory(run, seed, steps)
