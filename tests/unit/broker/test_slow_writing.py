"""A topic whose disk is slow: it is written to in a thread, in order, and who publishes waits."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import pytest

from nsqd_py.broker.disk_io import SlowWriter
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.disk_pace import DiskPace
from tests.unit.fakes import FakePublisher, close_descriptors
from tests.unit.topic_bench import Bench, logged


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
        self.pace = self.slow.pace = DiskPace(self.world.alarms, self.world.clock)
        self.slow.slow_writer = SlowWriter(self.slow, self.slow.log, self.pool, self.pace)
        self.pace.stall(self)

    def speed_up(self) -> None:
        self.pace.end_stall(self)

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
    messages = logged(topic)
    assert [seq for seq, _ in messages] == list(range(len(messages))), "numbers without a gap"
    return [body for _, body in messages]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[SlowBench]:
    yield SlowBench(tmp_path)
    close_descriptors(tmp_path)


def test_publishers_wait_until_it_is_written(bench: SlowBench) -> None:
    publishers = [bench.put(b"one"), bench.put(b"two", b"three"), bench.put(b"four")]
    assert [publisher.holds for publisher in publishers] == [1, 1, 1]
    assert bench.of_slow.depth == 1
    assert bodies(bench.slow) == [b"before"]
    bench.open_gate()
    assert [publisher.holds for publisher in publishers] == [0, 0, 0]
    assert [publisher.failures for publisher in publishers] == [[], [], []]
    assert bodies(bench.slow) == [b"before", b"one", b"two", b"three", b"four"]
    assert bench.of_slow.depth == 5
    assert bench.slow.unsynced == 5


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
    bench.pace.stall(bench)
    bench.open_gate()
    assert bench.slow.is_slow
    assert bench.put(b"two").holds == 0, "the gate is open"
    assert bodies(bench.slow) == [b"before", b"one", b"two"]


def test_a_write_that_fails_takes_all_with_it_that_came_behind(bench: SlowBench, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = bench.put(b"one"), bench.put(b"two")
    third = bench.publish(bench.slow, b"three")  # of the iteration that is not at its end
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        bench.open_gate()
    for publisher in (first, second, third):
        ((_, error),) = publisher.failures
        assert error.errno == errno.ENOSPC
        assert publisher.holds == 0
    assert bench.of_slow.depth == 1
    assert not bench.put(b"after").failures
    assert bodies(bench.slow) == [b"before", b"after"]


def refuse(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


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


def test_a_new_file_is_made_in_the_thread(tmp_path: Path) -> None:
    bench = SlowBench(tmp_path, max_bytes_per_file=200)
    bench.put(b"x" * 100)
    assert len(list(tmp_path.iterdir())) == 1
    bench.open_gate()
    assert len(list(tmp_path.iterdir())) == 2
    bench.put(b"y" * 100)
    assert bodies(bench.slow) == [b"before", b"x" * 100, b"y" * 100]
    close_descriptors(tmp_path)


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
