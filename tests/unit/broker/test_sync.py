"""When logs are synced, what is answered then, and what becomes of a sync that fails or takes long."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from nsqd_py.broker.slow_disk import SlowWriter
from nsqd_py.broker.sync import GroupSync
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.guid import GuidFactory
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.disk_pace import DiskPace
from tests.unit.broker.test_slow_writing import GatedPool
from tests.unit.fakes import MS, SECOND, FakePublisher, FakeThreadPool, World, close_descriptors, sized


class Bench:
    """A topic with a real log, whose syncs go where the test says."""

    def __init__(self, directory: Path, every: int = 1, pool: Any = None) -> None:
        self.world = World()
        self.synced: list[OSError | None] = []
        self.pace = DiskPace(self.world.alarms, self.world.clock)
        self.sync = GroupSync(
            every, 2 * SECOND, pool or FakeThreadPool(), self.world.alarms, self.world.clock,
            lambda _, error: self.synced.append(error), self.pace,
        )  # fmt: skip
        self.log = TopicLog(directory, "orders", 1 << 20, self.world.log.error)
        self.topic = Topic(
            "orders", self.log, GuidFactory(1), 100, self.world.iteration, self.world.clock, self.sync, self.world.log
        )
        self.topic.pace = self.pace
        self.topic.slow_writer = SlowWriter(self.topic, self.log, pool or FakeThreadPool(), self.pace)

    def put(self, body: bytes = b"x") -> FakePublisher:
        publisher = FakePublisher()
        self.topic.publish(sized(body), 1, 4 + len(body), publisher, 0)
        self.world.run()
        self.settle()
        return publisher

    def settle(self) -> None:
        for _ in range(4):
            gevent.sleep(0)

    def pass_time(self, ns: int) -> None:
        self.world.pass_time(ns)
        self.settle()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield Bench(tmp_path)
    close_descriptors(tmp_path)


class Disk:
    """fdatasync of some files fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bad: set[str] = set()
        self.syncs: list[str] = []
        self._real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, fd: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{fd}")).name
        self.syncs.append(name)
        if name in self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._real(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def ended_well(publisher: FakePublisher) -> bool:
    assert publisher.holds == 0
    return not publisher.failures


def test_the_log_goes_on_in_a_new_file(bench: Bench, disk: Disk) -> None:
    assert ended_well(bench.put(b"one"))
    (old,) = (file.path.name for file in bench.log.files)
    disk.bad.add(old)
    assert not ended_well(bench.put(b"two"))
    assert isinstance(bench.synced[-1], OSError)
    assert ended_well(bench.put(b"three")), "it is in a file that works"
    assert isinstance(bench.synced[-1], OSError), "and yet not all is well"
    assert [file.first_seq for file in bench.log.files] == [0, 2]


def test_it_is_tried_again_after_a_while_that_grows(bench: Bench, disk: Disk) -> None:
    bench.put()
    (old,) = (file.path.name for file in bench.log.files)
    disk.bad.add(old)
    bench.put()
    tries = disk.syncs.count(old)
    for _ in range(5):
        bench.put()
    assert disk.syncs.count(old) == tries
    bench.pass_time(SECOND)
    assert disk.syncs.count(old) == tries + 1
    bench.pass_time(SECOND)
    assert disk.syncs.count(old) == tries + 1
    bench.pass_time(SECOND)
    assert disk.syncs.count(old) == tries + 2
    for _ in range(3600):
        bench.pass_time(SECOND)
    assert 110 < disk.syncs.count(old) < 130, "every 30 s at last"
    disk.bad.clear()
    bench.pass_time(30 * SECOND)
    assert bench.synced[-1] is None
    assert bench.log.files[0].synced_offset == bench.log.files[0].end_offset


def test_a_disk_that_syncs_nothing_is_not_filled_with_files(
    bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put()
    monkeypatch.setattr(disk, "_real", refuse(errno.EIO))
    for _ in range(100):
        assert not ended_well(bench.put())
    assert len(bench.log.files) == 2
    bench.pass_time(60 * SECOND)
    assert len(bench.log.files) <= 2


def refuse(number: int) -> Callable[..., Any]:
    def refused(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    return refused


def test_names_that_cannot_be_synced(bench: Bench, disk: Disk, tmp_path: Path) -> None:
    disk.bad.add(tmp_path.name)
    assert not ended_well(bench.put())
    disk.bad.clear()
    assert ended_well(bench.put())
    assert bench.synced[-1] is None


def test_a_sync_needs_no_descriptor_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.put()
    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", refuse(errno.EMFILE))
        patch.setattr(os, "open", refuse(errno.EMFILE))
        assert ended_well(bench.put())
    assert bench.synced[-1] is None


def test_a_record_that_cannot_be_read_back_is_written_from_memory(
    bench: Bench, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the system forgot the page that it could not write."""
    bench.put(b"one")
    (file,) = bench.log.files
    disk.bad.add(file.path.name)
    bench.put(b"two")
    with file.path.open("r+b") as data:
        data.seek(file.synced_offset)
        data.write(bytes(file.end_offset - file.synced_offset))
    assert [batch.first_seq for batch in bench.log.read(0)] == [0]
    disk.bad.clear()
    bench.pass_time(SECOND)
    assert bench.synced[-1] is None
    bench.log._chunks.forget()
    assert [batch.message(0) for batch in bench.log.read(0)] == [b"one", b"two"]


def test_a_bug_in_a_sync_keeps_nobody_waiting(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.put()
    hub = gevent.get_hub()
    monkeypatch.setattr(hub, "handle_error", lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(TopicLog, "take_unsynced", None)
        assert not ended_well(bench.put())
    assert ended_well(bench.put())


# --- a slow one


def test_a_sync_that_takes_long_slows_its_topic_down(tmp_path: Path) -> None:
    pool = GatedPool()
    bench = Bench(tmp_path, pool=pool)
    first = bench.put()
    bench.pass_time(99 * MS)
    assert not bench.pace.is_slow
    bench.pass_time(MS)
    assert bench.pace.is_slow
    assert bench.topic.is_slow
    second = bench.put()
    assert bench.topic.next_seq == 1, "it waits for a thread"
    pool.gate.set()
    for _ in range(3):
        bench.settle()
    assert ended_well(first)
    assert ended_well(second)
    assert not bench.pace.is_slow
    assert not bench.topic.is_slow
    assert bench.topic.next_seq == 2
    close_descriptors(tmp_path)


def test_quick_syncs_in_a_row_are_not_slow(bench: Bench) -> None:
    for _ in range(50):
        bench.put()
        bench.pass_time(10 * MS)
        assert not bench.topic.is_slow


def test_a_topic_that_is_gone_is_not_slow(tmp_path: Path) -> None:
    pool = GatedPool()
    bench = Bench(tmp_path, pool=pool)
    publisher = bench.put()
    bench.pass_time(100 * MS)
    assert bench.pace.is_slow
    bench.sync.forget(bench.topic)
    assert not bench.pace.is_slow
    pool.gate.set()
    bench.settle()
    assert ended_well(publisher)
    close_descriptors(tmp_path)


# --- publishers that share a sync


def put_together(bench: Bench, count: int) -> list[FakePublisher]:
    """Publish in one iteration, each with a publisher of its own."""
    publishers = [FakePublisher() for _ in range(count)]
    for publisher in publishers:
        bench.topic.publish(sized(b"x"), 1, 5, publisher, 0)
    bench.world.run()
    bench.settle()
    return publishers


def test_a_sync_waits_for_those_that_the_last_one_answered(bench: Bench, disk: Disk) -> None:
    assert all(map(ended_well, put_together(bench, 3)))
    before = len(disk.syncs)
    early = [bench.put(), bench.put()]
    assert [publisher.holds for publisher in early] == [1, 1]
    assert len(disk.syncs) == before
    late = bench.put()
    assert all(map(ended_well, [*early, late]))
    assert len(disk.syncs) == before + 1


def test_a_sync_waits_no_longer_than_a_millisecond_and_the_next_ones_not_at_all(bench: Bench) -> None:
    put_together(bench, 3)
    alone = bench.put()
    assert alone.holds == 1
    bench.pass_time(MS)
    assert ended_well(alone)
    for _ in range(10):
        assert ended_well(bench.put())


def test_a_publisher_that_is_alone_waits_for_nobody(bench: Bench) -> None:
    for _ in range(3):
        assert ended_well(bench.put())


def test_a_stop_does_not_wait_for_publishers(bench: Bench) -> None:
    put_together(bench, 2)
    alone = bench.put()
    assert alone.holds == 1
    bench.sync.join()
    assert ended_well(alone)
