"""Reading and writing in threads: after a bug, what waits goes on, and the error is reported."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.event
import pytest

from nsqd_py.broker.disk_io import JournalWriter, SaveResult, SlowReader, SlowWriter, StillReading
from nsqd_py.diskqueue.journal import Journal
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.disk_speed import DiskSpeed
from nsqd_py.runtime.threads import Job
from tests.support.broker_life import TOPIC, Life
from tests.support.nsqd_process import wait_until
from tests.unit.fakes import SECOND, FakeConsumer, FakePublisher, FakeThreadPool, World, close_descriptors, refuse
from tests.unit.log_bench import read_all
from tests.unit.topic_bench import Bench


def fail(*_: object) -> Any:
    raise KeyError("a bug")


def fail_not(*_: object) -> None: ...


class Large:
    """A channel whose journal needs a large snapshot, and that snapshot. One of its methods fails."""

    is_closed = wants_snapshot = False
    wants_large_snapshot = True

    def __init__(self, failing: str) -> None:
        self.calls: list[str] = []
        self._failing = failing

    def __getattr__(self, name: str) -> Any:
        def call() -> Large:
            self.calls.append(name)
            return fail() if name == self._failing else self

        return call


@pytest.mark.parametrize("failing", ["begin_large_snapshot", "write", "finish"])
def test_a_bug_in_the_replacement_of_a_journal_is_reported_and_the_next_one_begins(failing: str) -> None:
    world, channel = World(), Large(failing)
    disk_speed = DiskSpeed(world.alarms, world.clock, world.clock)
    services: Any = SimpleNamespace(disk_speed=disk_speed, alarms=world.alarms, clock=world.clock, threadpool=FakeThreadPool())
    saved: list[SaveResult] = []
    writer: Any = JournalWriter(services, saved.extend)
    for round_number in (1, 2):
        writer.channel_changed(None, channel)
        world.pass_time(SECOND)
        gevent.sleep(0)
        assert channel.calls.count(failing) == round_number
        assert channel.calls.count("abandon") == (round_number if failing != "begin_large_snapshot" else 0)
        assert "internal error " in str(saved[-1][2])
    assert not writer.is_writing


def test_a_bug_in_a_read_is_the_error_of_that_read() -> None:
    world = World()
    disk_speed = DiskSpeed(world.alarms, world.clock, world.clock)
    disk_speed.stall(world)
    woken: list[bool] = []
    read = SlowReader(FakeThreadPool(), disk_speed, lambda: woken.append(True)).read
    file: Any = type("File", (), {"pin": fail_not, "unpin": fail_not, "read": fail})()
    with pytest.raises(StillReading):
        read(file, 0, 10)
    gevent.sleep(0)
    assert woken
    with pytest.raises(OSError, match="internal error [0-9a-f]{6}, see the server's log"):
        read(file, 0, 10)


def test_what_was_read_before_a_repair_is_read_again() -> None:
    """Also what a thread is reading at that moment."""
    world = World()
    disk_speed = DiskSpeed(world.alarms, world.clock, world.clock)
    disk_speed.stall(world)
    pool, woken, content = GatedPool(), [], [b"damaged"]
    reader = SlowReader(pool, disk_speed, lambda: woken.append(True))
    file: Any = type("File", (), {"pin": fail_not, "unpin": fail_not, "read": lambda *_: content[0]})()

    def read() -> bytes:
        """As a channel does: again when it is woken."""
        while True:
            try:
                return reader.read(file, 0, 10)
            except StillReading:
                woken.clear()
                wait_until(lambda: gevent.sleep(0) or woken)

    pool.gate.set()
    assert read() == b"damaged"
    content[0] = b"repaired"
    assert read() == b"damaged", "it is not read twice"
    reader.forget()
    assert read() == b"repaired"

    pool.gate.clear()
    reader.forget()
    late: list[bytes] = []
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


class GatedPool:
    """A thread that begins when the test says so."""

    def __init__(self) -> None:
        self.gate = gevent.event.Event()

    def apply(self, function: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        assert self.gate.wait(40)
        return function(*arguments)

    def begin(self, function: Callable[..., Any], arguments: tuple[Any, ...], on_done: Callable[[Job], None]) -> None:
        job = Job(self.apply, (function, arguments), on_done)
        gevent.spawn(lambda: (job.run(), gevent.get_hub().loop.run_callback(on_done, job)))


class SlowBench(Bench):
    """A topic on a slow disk, with a channel."""

    def __init__(self, directory: Path, max_bytes_per_file: int = 1 << 20) -> None:
        super().__init__(directory)
        self.syncer.every = 100
        self.pool = GatedPool()
        self.slow = self.topic(max_bytes_per_file=max_bytes_per_file)
        self.of_slow = self.channel(self.slow)
        self.put(b"before")
        assert self.slow.log is not None
        self.disk_speed = self.slow.disk_speed = DiskSpeed(self.world.alarms, self.world.clock, monotonic_ns)
        self.slow.slow_writer = SlowWriter(self.slow, self.slow.log, self.pool, self.disk_speed)
        self.disk_speed.stall(self)

    def speed_up(self) -> None:
        self.disk_speed.end_stall(self)

    def put(self, *messages: bytes) -> FakePublisher:
        publisher = self.publish(self.slow, *messages)
        self.world.run()
        self._wait()
        return publisher

    def open_gate(self) -> None:
        self.pool.gate.set()
        self._wait()

    def _wait(self) -> None:
        """Wait until the thread has written everything, if the gate is open."""
        gevent.sleep(0)
        if self.pool.gate.is_set():
            self.slow.slow_writer.join()


def bodies(topic: Topic) -> list[bytes]:
    assert topic.log is not None
    messages = read_all(topic.log)
    assert [seq for seq, _ in messages] == list(range(len(messages))), "numbers without a gap"
    return [body for _, body in messages]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[SlowBench]:
    yield SlowBench(tmp_path)
    close_descriptors(tmp_path)


def test_what_waits_is_written_before_it_is_quick_again(bench: SlowBench) -> None:
    bench.put(b"one")
    bench.speed_up()
    assert bench.slow.is_slow
    after = bench.put(b"two")
    assert after.holds == 1
    bench.open_gate()
    assert not bench.slow.is_slow
    assert bench.put(b"three").holds == 0
    assert bodies(bench.slow) == [b"before", b"one", b"two", b"three"]


def test_it_stays_slow_when_the_next_sync_is(bench: SlowBench) -> None:
    bench.put(b"one")
    bench.speed_up()
    bench.disk_speed.stall(bench)
    bench.open_gate()
    assert bench.slow.is_slow
    assert bench.put(b"two").holds == 0, "the gate is open"
    assert bodies(bench.slow) == [b"before", b"one", b"two"]


def test_a_bug_is_not_answered_with_ok(bench: SlowBench) -> None:
    publisher = bench.publish(bench.slow, b"lost", defer_ns=1 << 63)  # a time that fits no record
    bench.world.run()
    gevent.sleep(0)
    hub = gevent.get_hub()
    errors: list[object] = []
    hub.handle_error, real = lambda *what: errors.append(what), hub.handle_error
    try:
        bench.open_gate()
    finally:
        hub.handle_error = real
    assert len(publisher.failures) == len(errors) == 1
    assert publisher.holds == 0
    assert not bench.put(b"after").failures
    assert bodies(bench.slow) == [b"before", b"after"]


def test_settling(bench: SlowBench) -> None:
    bench.publish(bench.slow, b"one")
    settling = gevent.spawn(bench.slow.settle)
    gevent.sleep(0)
    bench.publish(bench.slow, b"two")
    assert not settling.ready()
    bench.open_gate()
    settling.get(timeout=40)
    assert bodies(bench.slow) == [b"before", b"one", b"two"]


def test_a_long_publish_is_written_in_a_thread_on_a_quick_disk_too(bench: SlowBench) -> None:
    """Its checksum, and the copy to the page cache, take the loop many milliseconds; what follows waits for it."""
    bench.speed_up()
    assert bench.put(b"short").holds == 0
    long = bench.put(bytes(3_000_000))
    short = bench.put(b"two")
    assert (long.holds, short.holds) == (1, 1)
    assert bench.of_slow.depth == 2
    bench.open_gate()
    assert (long.holds, short.holds) == (0, 0)
    assert [len(body) for body in bodies(bench.slow)] == [6, 5, 3_000_000, 3]
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
        assert saved is not None
        return saved.finished.floor


@pytest.fixture
def life(tmp_path: Path) -> Iterator[SlowLife]:
    yield SlowLife(tmp_path)
    close_descriptors(tmp_path)


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
    emptying: Any = gevent.spawn(life.broker.empty_channel, topic, topic.channels["fast"])
    gevent.sleep(0)
    assert not emptying.ready()
    life.open_gate()
    emptying.get(timeout=40)
    assert life.on_disk() == 6
