"""A topic whose disk is slow: it is written to in a thread, in order, and who publishes waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
import gevent.event
import pytest

from nsqd_py.broker.disk_io import SlowWriter
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.disk_speed import DiskSpeed
from tests.unit.fakes import FakePublisher, close_descriptors
from tests.unit.log_bench import read_all
from tests.unit.topic_bench import Bench


class GatedPool:
    """A thread that begins when the test says so."""

    def __init__(self) -> None:
        self.gate = gevent.event.Event()

    def apply(self, function: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        self.gate.wait(40)
        return function(*arguments)


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
        gevent.sleep(0)
        return publisher

    def open_gate(self) -> None:
        self.pool.gate.set()
        for _ in range(3):
            gevent.sleep(0)


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
    settling.join(40)
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
