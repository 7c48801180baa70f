"""Publishers that wait at a gate: who is answered by which confirmation, who has waited too long; and several gates at once."""

from __future__ import annotations

import errno
import os
from itertools import permutations
from pathlib import Path

import pytest
from gevent.event import Event

from nsqd_py.broker.answer_gate import AnswerGate
from nsqd_py.broker.services import Topic
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.standby.primary import Standbys
from tests.support.broker_life import Life
from tests.support.nsqd_process import wait_until
from tests.support.standby_link import StandbyLink
from tests.unit.fakes import MS, SECOND, FakeClock, FakePublisher, FakeThreadPool

TIMEOUT_NS = 100


def held(needed: int, count: int) -> tuple[AnswerGate, list[FakePublisher], FakeClock]:
    """A gate with `count` publishers, whose writes have the numbers from 1 on, 10 ns apart."""
    clock = FakeClock()
    gate = AnswerGate(needed, TIMEOUT_NS)
    publishers = [FakePublisher() for _ in range(count)]
    for number, publisher in enumerate(publishers, 1):
        gate.hold(number, [(publisher, 0)], clock.now_ns)
        clock.now_ns += 10
    return gate, publishers, clock


def waiting(publishers: list[FakePublisher]) -> list[int]:
    return [publisher.holds for publisher in publishers]


def test_two_must_have_it() -> None:
    gate, publishers, _ = held(2, 3)
    assert gate.confirm([3]) == 0
    assert waiting(publishers) == [1, 1, 1]
    assert gate.confirm([3, 1, 0]) == 1
    assert waiting(publishers) == [0, 1, 1]
    assert gate.confirm([2, 3, 0]) == 2
    assert waiting(publishers) == [0, 0, 1]
    assert (len(gate), gate.publisher_count) == (1, 1)


def test_who_has_waited_too_long() -> None:
    gate, publishers, clock = held(1, 3)
    assert gate.last_waiting(20, clock.now_ns) == 2
    deadline_ns = gate.next_deadline_ns
    gate.refuse_overdue(deadline_ns - 1, TimeoutError())
    assert waiting(publishers) == [1, 1, 1]
    gate.refuse_overdue(deadline_ns + 10, TimeoutError())
    assert waiting(publishers) == [0, 0, 1]
    assert [len(publisher.failures) for publisher in publishers] == [1, 1, 0]


def test_only_those_of_a_write_that_failed_get_its_error() -> None:
    gate, publishers, _ = held(1, 3)
    error = OSError("bad disk")
    gate.answer_all(lambda write: error if write == 2 else None)
    assert waiting(publishers) == [0, 0, 0]
    assert [publisher.failures for publisher in publishers] == [[], [(0, error)], []]
    assert not gate and gate.publisher_count == 0


def test_after_a_bug_those_who_wait_can_still_be_refused() -> None:
    gate, publishers, _ = held(1, 2)
    with pytest.raises(KeyError):
        gate.answer_all(lambda write: {1: None}[write])
    assert waiting(publishers) == [0, 1]
    gate.answer_all(lambda _: OSError("a bug"))
    assert waiting(publishers) == [0, 0]
    assert [len(publisher.failures) for publisher in publishers] == [0, 1]


# --- several gates at once


class LateCopy:
    """A third part that must have each message: it confirms when the test says so."""

    def __init__(self, life: Life) -> None:
        self.gate = AnswerGate()
        self.writes = 0
        life.broker.sync.add_holder(self._written)

    def _written(self, _topic: Topic, publishers: Tickets) -> None:
        self.writes += 1
        self.gate.hold(self.writes, publishers)


PARTS = ("sync", "standby", "copy")
# A sync that takes longer than 5 ms lets gevent put off what would run after it.
_ROUNDS = 40


class Bench:
    """A primary with --sync-every=1, a standby that --standby-acks=1 waits for, and a copy."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("primary", "standby"):
            (path / name).mkdir()
        self.life = Life(
            path / "primary",
            lambda *_: None,
            lease="",
            sync_every=1,
            standby_acks=1,
            standby_timeout_ns=SECOND,
            standby_on_timeout="refuse",
        )
        self.life.create()
        self.replication = Standbys(self.life.broker, path / "primary", FakeThreadPool())
        self.life.broker.additions.take_role(self.replication)
        self.link = StandbyLink(self.replication, path / "standby", []).connect()
        while not self.link.last_round:
            self.life.settle()
        self.link.acknowledges = False
        self.copy = LateCopy(self.life)
        self.disk = Event()
        self.disk_error: OSError | None = None
        self._fdatasync = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        assert self.disk.wait(40)
        if self.disk_error is not None:
            raise self.disk_error
        self._fdatasync(descriptor)

    def publish(self, body: bytes) -> FakePublisher:
        before = self.link.last_round
        publisher = self.life.publish(body)

        def has_it() -> bool:
            self.life.settle()
            return self.link.last_round > before

        wait_until(has_it, what="the standby to get it")
        return publisher

    def confirm(self, part: str) -> None:
        if part == "sync":
            self.disk.set()
        elif part == "standby":
            self.replication.acknowledge(self.link, self.link.last_round)
        else:
            self.copy.gate.confirm([self.copy.writes])
        self.life.settle(_ROUNDS)

    def refuse(self, part: str) -> None:
        error = OSError(errno.EIO, os.strerror(errno.EIO))
        if part == "sync":
            self.disk_error = error
            self.disk.set()
        elif part == "standby":
            self.life.pass_time(2 * SECOND)
        else:
            self.copy.gate.refuse_overdue(0, error)
        self.life.settle(_ROUNDS)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@pytest.mark.parametrize("order", list(permutations(PARTS)), ids=" ".join)
def test_an_answer_leaves_when_the_last_has_confirmed(bench: Bench, order: tuple[str, ...]) -> None:
    publisher = bench.publish(b"x")
    for count, part in enumerate(order):
        assert publisher.holds == len(order) - count
        bench.confirm(part)
    assert publisher.holds == 0
    assert publisher.failures == []
    bench.life.end()


@pytest.mark.parametrize("part", PARTS)
def test_whoever_refuses_the_publisher_gets_an_error(bench: Bench, part: str) -> None:
    """Also if all others have confirmed."""
    publisher = bench.publish(b"x")
    for other in PARTS:
        if other != part:
            bench.confirm(other)
    assert (publisher.holds, publisher.failures) == (1, [])
    bench.refuse(part)
    assert publisher.holds == 0
    assert len(publisher.failures) == 1
    bench.life.end()


def test_a_confirmation_covers_only_what_was_written_before(bench: Bench) -> None:
    first = bench.publish(b"first")
    bench.confirm("copy")
    bench.confirm("standby")
    second = bench.publish(b"second")
    bench.confirm("sync")
    assert (first.holds, second.holds) == (0, 3)
    bench.confirm("standby")
    bench.confirm("copy")
    assert second.holds == 1
    bench.life.pass_time(MS)  # the next sync begins
    assert second.holds == 0
    bench.life.end()
