"""Reading and writing in threads: after a bug, what waits goes on, and the error is reported."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import gevent
import pytest

from nsqd_py.broker.disk import journal_writer
from nsqd_py.broker.disk.journal_writer import JOURNAL_DELAY_NS, JournalWriter
from nsqd_py.broker.disk.slow_disk import SlowReader, StillReading
from nsqd_py.diskqueue.journals.journal import Journal
from tests.support.broker_life import TOPIC, Life
from tests.support.nsqd_process import wait_until
from tests.unit.fakes import (
    SECOND,
    FakeConsumer,
    FakePublisher,
    FakeThreadPool,
    GatedPool,
    World,
    publish,
    refuse,
)
from tests.unit.topic_bench import SlowBench


def quiet_channel() -> Mock:
    """It has some changes."""
    return Mock(is_closed=False, wants_snapshot=False, wants_large_snapshot=False, has_many_changes=False)


def test_many_journals_are_written_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 channels that changed stopped the event loop for 0.3 s. A journal that cannot be written keeps no other waiting."""
    world = World()
    moments_s = count(0.0, 0.0003)
    monkeypatch.setattr(journal_writer, "monotonic", lambda: next(moments_s))
    channels = [quiet_channel() for _ in range(20)]
    channels[-1].save_changes.side_effect = OSError(28, "no space left on device")
    saved = []
    writer = JournalWriter(world, saved.extend)
    for channel in channels:
        writer.channel_changed(None, channel)
    world.clock.now_ns += JOURNAL_DELAY_NS
    most_at_once = 0
    for _ in range(20):
        before = len(saved)
        while world.alarms.ring_next(world.clock()):
            most_at_once = max(most_at_once, len(saved) - before)
            before = len(saved)
        world.clock.now_ns += JOURNAL_DELAY_NS
    assert most_at_once <= 3
    assert [channel.save_changes.call_count for channel in channels[:-1]] == [1] * 19
    assert channels[-1].save_changes.call_count > 5


def test_many_changes_of_one_channel_are_written_in_a_thread() -> None:
    world = World()
    channel = quiet_channel()
    channel.has_many_changes = True
    writer = JournalWriter(world, lambda _: None)
    writer.channel_changed(None, channel)
    world.pass_time(JOURNAL_DELAY_NS)
    assert writer.is_writing
    gevent.sleep(0)
    assert not channel.save_changes.called
    assert channel.begin_save.return_value.write.called
    assert not writer.is_writing


@pytest.mark.parametrize("failing", ["begin_large_snapshot", "write", "finish"])
def test_a_bug_in_the_replacement_of_a_journal_is_reported_and_the_next_one_begins(failing: str) -> None:
    world, channel = World(), quiet_channel()
    channel.wants_large_snapshot = True
    channel.begin_large_snapshot.return_value = channel  # it is its own snapshot
    getattr(channel, failing).side_effect = KeyError("a bug")
    saved = []
    writer = JournalWriter(world, saved.extend)
    for round_number in (1, 2):
        writer.channel_changed(None, channel)
        world.pass_time(SECOND)
        gevent.sleep(0)
        assert getattr(channel, failing).call_count == round_number
        assert channel.abandon.call_count == (round_number if failing != "begin_large_snapshot" else 0)
        assert "internal error " in str(saved[-1][2])
    assert not writer.is_writing


@pytest.fixture
def stalled() -> World:
    """Its disk is slow."""
    world = World()
    world.disk_speed.stall(world)
    return world


def test_a_bug_in_a_read_is_the_error_of_that_read(stalled: World) -> None:
    woken = []
    read = SlowReader(FakeThreadPool(), stalled.disk_speed, lambda: woken.append(True)).read
    file = Mock()
    file.read.side_effect = KeyError("a bug")
    with pytest.raises(StillReading):
        read(file, 0, 10)
    gevent.sleep(0)
    assert woken
    with pytest.raises(OSError, match="internal error [0-9a-f]{6}, see the server's log"):
        read(file, 0, 10)


def test_what_was_read_before_a_repair_is_read_again(stalled: World) -> None:
    """Also what a thread is reading at that moment."""
    pool, woken, content = GatedPool(), [], [b"damaged"]
    reader = SlowReader(pool, stalled.disk_speed, lambda: woken.append(True))
    file = Mock(read=lambda *_: content[0])

    def read() -> bytes:
        """As a channel does: again when it is woken."""
        while True:
            try:
                return reader.read(file, 0, 10)
            except StillReading:
                woken.clear()
                wait_until(lambda: gevent.sleep(0.001) or woken)

    pool.gate.set()
    assert read() == b"damaged"
    content[0] = b"repaired"
    assert read() == b"damaged", "it is not read twice"
    reader.forget()
    assert read() == b"repaired"

    pool.gate.clear()
    reader.forget()
    late = []
    pool.apply = lambda function, arguments: (late.append(function(*arguments)), pool.gate.wait(40))[0]  # type: ignore[method-assign]
    content[0] = b"old"
    with pytest.raises(StillReading):
        reader.read(file, 0, 10)
    gevent.sleep(0)
    assert len(late) == 1, "a thread has read it, and its greenlet does not know that yet"
    content[0] = b"new"
    reader.forget()
    pool.gate.set()
    assert read() == b"new"


# --- a topic whose disk is slow: it is written to in a thread, in order, and who publishes waits


class GatedBench(SlowBench):
    """Its thread begins when the gate is open."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, GatedPool())
        self.syncer.every = 100

    def speed_up(self) -> None:
        self.disk_speed.end_stall(self)

    def put(self, *messages: bytes) -> FakePublisher:
        publisher = super().put(*messages)
        self._wait()
        return publisher

    def open_gate(self) -> None:
        self.threads.gate.set()
        gevent.sleep(0)
        self._wait()

    def _wait(self) -> None:
        if self.threads.gate.is_set():
            self.writer.join()


@pytest.fixture
def bench(directory: Path) -> GatedBench:
    return GatedBench(directory)


def test_what_waits_is_written_before_it_is_quick_again(bench: GatedBench) -> None:
    bench.put(b"one")
    bench.speed_up()
    assert bench.slow.is_slow
    after = bench.put(b"two")
    assert after.holds == 1
    bench.open_gate()
    assert not bench.slow.is_slow
    assert bench.put(b"three").holds == 0
    assert bench.bodies() == [b"before", b"one", b"two", b"three"]


def test_it_stays_slow_when_the_next_sync_is(bench: GatedBench) -> None:
    bench.put(b"one")
    bench.speed_up()
    bench.disk_speed.stall(bench)
    bench.open_gate()
    assert bench.slow.is_slow
    assert bench.put(b"two").holds == 0, "the gate is open"
    assert bench.bodies() == [b"before", b"one", b"two"]


def test_a_bug_is_not_answered_with_ok(bench: GatedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = bench.world.publish(bench.slow, b"lost", defer_ns=1 << 63)  # a time that fits no record
    gevent.sleep(0)
    errors = []
    monkeypatch.setattr(gevent.get_hub(), "handle_error", lambda *what: errors.append(what))
    bench.open_gate()
    assert len(publisher.failures) == len(errors) == 1
    assert publisher.holds == 0
    assert not bench.put(b"after").failures
    assert bench.bodies() == [b"before", b"after"]


def test_settling(bench: GatedBench) -> None:
    publish(bench.slow, b"one")
    settling = gevent.spawn(bench.slow.settle)
    gevent.sleep(0)
    publish(bench.slow, b"two")
    assert not settling.ready()
    bench.open_gate()
    settling.get(timeout=40)
    assert bench.bodies() == [b"before", b"one", b"two"]


def test_a_long_publish_is_written_in_a_thread_on_a_quick_disk_too(bench: GatedBench) -> None:
    """Its checksum, and the copy to the page cache, take the loop many milliseconds; what follows waits for it."""
    bench.speed_up()
    assert bench.put(b"short").holds == 0
    long = bench.put(bytes(3_000_000))
    short = bench.put(b"two")
    assert (long.holds, short.holds) == (1, 1)
    assert bench.of_slow.depth == 2
    bench.open_gate()
    assert (long.holds, short.holds) == (0, 0)
    assert [len(body) for body in bench.bodies()] == [6, 5, 3_000_000, 3]
    assert not bench.slow.is_slow
    assert bench.put(b"three").holds == 0


# ---- journals on a slow disk are written in a thread


class SlowLife(Life):
    """The disk is slow, and a channel has six messages in flight."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, lambda *_: None)
        self.create()
        for number in range(6):
            self.publish(b"%d" % number)
        self.fast: FakeConsumer = self.consumer("fast", rdy=6)
        self.settle()
        self.received = self.fast.take()
        self.pass_time(SECOND)
        self.pool = GatedPool()
        self.broker.services.threadpool = self.pool
        self.broker.disk_speed.stall(self)

    def finish_next(self) -> None:
        self.fast.finish(self.received.pop(0))
        self.pass_time(SECOND // 5)

    def open_gate(self) -> None:
        self.pool.gate.set()
        self.settle()

    def on_disk(self) -> int:
        """How many messages are finished, as a start would find it."""
        saved = Journal(self.directory / f"{TOPIC}:fast.cursor").load()
        return saved.finished.floor


@pytest.fixture
def life(directory: Path) -> SlowLife:
    return SlowLife(directory)


def test_what_comes_meanwhile_is_written_next(life: SlowLife) -> None:
    life.finish_next()
    life.finish_next()
    life.open_gate()
    assert life.on_disk() == 1
    life.pass_time(SECOND)
    assert life.on_disk() == 2


def test_what_could_not_be_written_is_not_forgotten(life: SlowLife, monkeypatch: pytest.MonkeyPatch) -> None:
    life.finish_next()
    life.finish_next()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        life.open_gate()
        assert life.broker.health() is not None
    life.pass_time(SECOND)
    assert life.on_disk() == 2
    assert life.broker.health() is None


def test_who_writes_a_journal_anew_waits_for_the_thread(life: SlowLife) -> None:
    life.finish_next()
    topic = life.broker.get_topic(TOPIC)
    emptying = gevent.spawn(life.broker.empty_channel, topic, topic.channels["fast"])
    gevent.sleep(0)
    assert not emptying.ready()
    life.open_gate()
    emptying.get(timeout=40)
    assert life.on_disk() == 6
