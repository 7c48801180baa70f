"""With --sync-every=1 nothing that was acknowledged is lost in a power cut, wherever it comes; nor when the disk
failed before, in whatever it was asked to do.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import pytest

from nsqd_py.broker.metadata import MetadataWriter
from tests.support.broker_life import CHANNELS, TOPIC, Life, work
from tests.support.disk_calls import SYNCS, WRITES, Failing
from tests.support.ledger import History, Verdict, judge
from tests.support.power_cut import Op, Platter, Tape
from tests.unit.fakes import SECOND, FakeThreadPool

pytestmark = pytest.mark.ours

# The first is for every day.
seeds = pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]
)

STEPS = 60
OPTIONS = {"sync_every": 1, "max_bytes_per_file": 4096, "mem_queue_size": 50}

FAULTS = {
    "EIO on fsync": (errno.EIO, 0.3, SYNCS),
    "EIO on write": (errno.EIO, 0.2, WRITES),
    "ENOSPC": (errno.ENOSPC, 0.2, (*WRITES, "open", "rename", "posix_fallocate")),
    "EMFILE": (errno.EMFILE, 0.2, ("open", "dup")),
    "anything": (errno.EIO, 0.05, (*WRITES, *SYNCS, "open", "rename", "unlink", "ftruncate", "pread")),
}


def history_of(marks: list[Op]) -> History:
    """Return what the clients of a tape know, as a history of operations that follow each other."""
    history = History(clock_ns=itertools.count(1).__next__)
    history.created(TOPIC, *CHANNELS)
    publishes: dict[Op, int] = {}
    for kind, *rest in marks:
        if kind == "published":
            publishes[tuple(rest)] = history.sending(TOPIC, rest)
        elif kind == "acknowledged":
            history.ok(publishes[tuple(rest)])
        elif kind == "finished":
            for body in rest[1:]:
                history.fin(history.delivered(TOPIC, rest[0], body))
        elif kind == "emptied":
            history.cut_ended(history.cut(TOPIC, rest[0]), is_answered=False)  # on the disk it may be undone
    return history


def record(tape: Tape, failing: Failing, seed: int, rest_ns: int = 0, **options: int) -> None:
    """A life of a broker; at its end the disk is well for `rest_ns`."""
    tape.root.mkdir()
    with tape.recording():
        life = Life(tape.root, tape.mark, **(OPTIONS | options))
        life.create()
        failing.is_on = True
        work(life, random.Random(seed), STEPS)
        failing.is_on = False
        for _ in range(2):  # the second half retries what a sync of the first half has left
            life.pass_time(rest_ns // 2)
        if rest_ns:
            assert life.broker.health() is None
    life.end()


def restore(state: dict[str, bytes], old: Path, new: Path) -> None:
    new.mkdir()
    for path, content in state.items():
        (new / Path(path).relative_to(old)).write_bytes(content)


def check(directory: Path, marks: list[Op]) -> Verdict:
    """Start on what is there, and judge all that comes."""
    history = history_of(marks)
    history.killed()
    history.started()
    life = Life(directory, lambda *_: None, **OPTIONS)
    for name in CHANNELS:
        delivered = life.drain_into(history, name)
        assert len(delivered) == len(set(delivered)), "twice in one life"
    life.end()
    # Some messages of a publish may have come, and been finished, before the cut took it: it was not acknowledged yet.
    return judge(history, without=["torn"], source=str(directory))


def cut_power(tape: Tape, root: Path, chance: random.Random, cuts: int) -> Counter[str]:
    """At that many moments, and at the end; what was lost and what came again, over all."""
    begun = tape.ops.index(("mark", "created"))
    places = {
        *chance.sample(range(begun, len(tape.ops)), min(cuts, len(tape.ops) - begun)),
        len(tape.ops) - 1,
    }
    platter = Platter(chance)
    statistics: Counter[str] = Counter()
    for place, op in enumerate(tape.ops):
        platter.do(op)
        if place in places:
            for state in platter.states(count=1):
                directory = root / f"cut{statistics['faults']}"
                restore(state, tape.root, directory)
                found = check(directory, platter.marks)
                assert not found.findings, (place, op, *found.lines())
                statistics += Counter(faults=1, doubled=found.after_fin)
    statistics["acknowledged"] = history_of(platter.marks).acknowledged
    return statistics


@seeds
def test_a_power_cut(tmp_path, seed, tally):
    """At every moment of a life, in the slow lane."""
    tape = Tape(tmp_path / "before")
    record(tape, Failing(random.Random(), 0.0, 0), seed)
    statistics = cut_power(tape, tmp_path, random.Random(seed), cuts=len(tape.ops) if seed else 30)
    assert statistics["acknowledged"] > 100, "there was no load"
    tally(**statistics)


@seeds
@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_that_fails_and_then_a_power_cut(tmp_path, fault, seed, tally):
    error, share, calls = FAULTS[fault]
    failing = Failing(random.Random(seed), share, error, *calls)
    tape = Tape(tmp_path / "before", failing)
    record(tape, failing, seed)
    assert failing.count > 3, "nothing failed"
    statistics = cut_power(tape, tmp_path, random.Random(seed), cuts=40 if seed else 4)
    assert statistics["acknowledged"] > 20, "there was no load"
    tally(**(statistics + Counter(faults=failing.count)))


@seeds
def test_what_a_failed_sync_covered_is_on_the_disk_after_a_later_one(tmp_path, seed, tally):
    """Where publishes are acknowledged before the sync: its pages are clean for the system, and yet not on the disk."""
    failing = Failing(random.Random(seed), 0.7, errno.EIO, *SYNCS)
    tape = Tape(tmp_path / "before", failing)
    record(tape, failing, seed, rest_ns=60 * SECOND, sync_every=10, sync_timeout_ns=SECOND)
    assert failing.count > 3, "nothing failed"
    statistics = cut_power(tape, tmp_path, random.Random(seed), cuts=0)
    assert statistics["acknowledged"] > 100, "there was no load"
    tally(**(statistics + Counter(faults=failing.count)))


class LatePool(FakeThreadPool):
    """What is to be done in a thread is done after other greenlets had their turns."""

    def apply(self, function: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        for _ in range(5):
            gevent.sleep(0)
        return super().apply(function, arguments)


@seeds
def test_channels_that_come_and_go(tmp_path, seed, tally):
    """A publish is acknowledged when it is on the disk, too, which channels it is for."""
    chance = random.Random(seed)
    tape = Tape(tmp_path / "before")
    tape.root.mkdir()
    with tape.recording():
        life = Life(tape.root, tape.mark, **OPTIONS)
        life.create()
        life.broker.metadata.want = MetadataWriter.want.__get__(life.broker.metadata)  # type: ignore[method-assign]
        life.broker.services.threadpool = LatePool()
        topic = life.broker.get_topic(TOPIC)
        for number in range(12):
            name = chance.choice(CHANNELS)
            tape.mark("emptied", name)
            life.broker.delete_channel(topic, name)
            if chance.random() < 0.5:
                life.settle()
            life.broker.get_channel(topic, name)
            life.publish(b"%d" % number)
            life.settle(rounds=chance.choice((4, 20)))
        life.settle(rounds=20)
    life.end()
    tally(**cut_power(tape, tmp_path, chance, cuts=len(tape.ops) if seed else 25))
