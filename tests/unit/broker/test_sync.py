"""When logs are synced, what is answered then, and what becomes of a sync that fails or takes long."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.event
import pytest

from nsqd_py.broker.disk.slow_disk import SlowWriter
from nsqd_py.broker.disk.sync import GroupSync
from nsqd_py.broker.upkeep.removed_files import RemovedFiles
from nsqd_py.diskqueue import syncing
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.syncing import UnsyncedFiles, file_system_of
from nsqd_py.protocol.message_ids import GuidFactory
from nsqd_py.queue.topic import DiskUse, Topic
from tests.support.disk_calls import path_of
from tests.support.power_cut import Op, Platter, Tape
from tests.support.together import wait_for_event
from tests.unit.fakes import (
    MS,
    SECOND,
    FakePublisher,
    FakeThreadPool,
    GatedPool,
    World,
    limits,
    publish,
    refuse,
    start_broker,
)

pytestmark = pytest.mark.usefixtures("quiet_hub")


class Bench:
    """A topic with a real log, whose syncs go where the test says."""

    def __init__(
        self,
        directory: Path,
        every: int = 1,
        when_settled: Callable[[Callable[[], None]], Any] = lambda call: call(),
    ) -> None:
        self.directory = directory
        self.world: Any = World()
        self.world.options = limits(sync_every=every, sync_timeout_ns=2 * SECOND)
        self.synced: list[OSError | None] = []
        self.disk_speed = self.world.disk_speed
        self.sync = GroupSync(
            self.world, lambda _, error: self.synced.append(error), when_settled, lambda *_: None
        )
        self.topic = self.new_topic("orders", DiskUse(self.disk_speed, make_writer=self._make_writer))
        self.log: Any = self.topic.log

    def new_topic(self, name: str, disk: DiskUse | None = None) -> Topic:
        world = self.world
        log = TopicLog(self.directory, name, 1 << 20, world.log.error)
        return Topic(
            name, log, GuidFactory(1), 100, world.iteration, world.clock, self.sync, world.log, disk=disk
        )

    def _make_writer(self, topic: Topic) -> SlowWriter:
        return SlowWriter(topic, topic.log, FakeThreadPool(), self.disk_speed)

    def put(self, body: bytes = b"x") -> FakePublisher:
        publisher = self.world.publish(self.topic, body)
        self.settle()
        return publisher

    def put_together(self, count: int) -> list[FakePublisher]:
        """Publish in one iteration, each with a publisher of its own."""
        publishers = [publish(self.topic, b"x") for _ in range(count)]
        self.world.run()
        self.settle()
        return publishers

    def settle(self) -> None:
        for _ in range(4):
            gevent.sleep(0)

    def pass_time(self, ns: int) -> None:
        self.world.pass_time(ns)
        self.settle()

    @property
    def file_name(self) -> str:
        """The name of the only file of the log."""
        (file,) = self.log.files
        return file.path.name


@pytest.fixture
def bench(directory: Path) -> Bench:
    return Bench(directory)


class Disk:
    """A sync of some files, or of their directory, fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bad: set[str] = set()
        self.syncs: list[str] = []
        self.real: Callable[[int], None] = os.fdatasync
        for name in ("fdatasync", "fsync"):
            monkeypatch.setattr(os, name, self._sync)

    def _sync(self, fd: int) -> None:
        name = Path(path_of(fd)).name
        self.syncs.append(name)
        if name in self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.real(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def ended_well(publisher: FakePublisher) -> bool:
    assert publisher.holds == 0
    return not publisher.failures


def test_the_log_goes_on_in_a_new_file(bench: Bench, disk: Disk) -> None:
    assert ended_well(bench.put(b"one"))
    disk.bad.add(bench.file_name)
    assert not ended_well(bench.put(b"two"))
    assert isinstance(bench.synced[-1], OSError)
    assert ended_well(bench.put(b"three")), "it is in a file that works"
    assert isinstance(bench.synced[-1], OSError), "and yet not all is well"
    assert [file.first_seq for file in bench.log.files] == [0, 2]


def test_publishers_to_a_topic_that_is_deleted_do_not_wait(bench: Bench) -> None:
    publish(bench.topic, b"x")
    bench.put()
    third = bench.put()
    assert third.holds == 1, "it waits for the second one to come again"
    bench.sync.forget(bench.topic)
    assert ended_well(third)


def test_a_file_that_nsqd_drops_during_a_sync_was_not_removed_by_others(bench: Bench) -> None:
    removed = RemovedFiles(bench.world, {})
    bench.put()
    (file,) = bench.log.files
    file.path.unlink()
    bench.log.files = []
    assert removed.check_synced(bench.topic, bench.log, [file]) is None
    assert not removed.problems
    bench.log.files = [file]
    assert removed.check_synced(bench.topic, bench.log, [file]) is not None
    bench.settle()  # it is written back


def test_it_is_tried_again_after_a_while_that_grows(bench: Bench, disk: Disk) -> None:
    bench.put()
    old = bench.file_name
    disk.bad.add(old)
    bench.put()
    tries = disk.syncs.count(old)
    for _ in range(5):
        bench.put()
    for more in (0, 1, 1, 2):  # after 0, 1, 2 and 3 s
        assert disk.syncs.count(old) == tries + more
        bench.pass_time(SECOND)
    for _ in range(3600):
        bench.pass_time(SECOND)
    assert 110 < disk.syncs.count(old) < 130, "every 30 s at last"
    disk.bad.clear()
    bench.pass_time(30 * SECOND)
    assert bench.synced[-1] is None
    assert bench.log.files[0].synced_offset == bench.log.files[0].end_offset


def test_a_disk_that_syncs_nothing_is_not_filled_with_files(bench: Bench, disk: Disk) -> None:
    bench.put()
    disk.real = refuse
    for _ in range(100):
        assert not ended_well(bench.put())
    assert len(bench.log.files) == 2
    bench.pass_time(60 * SECOND)
    assert len(bench.log.files) <= 2


def test_names_that_cannot_be_synced(bench: Bench, disk: Disk, directory: Path) -> None:
    disk.bad.add(directory.name)
    assert not ended_well(bench.put())
    disk.bad.clear()
    assert ended_well(bench.put())
    assert bench.synced[-1] is None


def test_a_bug_in_a_sync_keeps_nobody_waiting(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.put()
    with monkeypatch.context() as patch:
        patch.setattr(UnsyncedFiles, "take", None)
        assert not ended_well(bench.put())
    assert ended_well(bench.put())


@pytest.mark.parametrize("place", ["begin", "sync"])
def test_what_a_failed_sync_has_taken_is_synced_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It was neither synced nor unpinned any more, and its publishers may have had their OK, as without --sync-every=1."""
    with monkeypatch.context() as patch:
        if place == "begin":
            patch.setattr(FakeThreadPool, "begin", refuse)
        else:
            patch.setattr(os, "fdatasync", lambda _: {}["a bug"])
        bench.put()
    (file,) = bench.log.files
    assert file.synced_offset < file.end_offset
    bench.pass_time(2 * SECOND)
    assert file.synced_offset == file.end_offset
    assert not file._pin_count
    assert not bench.log.syncs.directory_changed


def test_a_bug_in_a_sync_keeps_nobody_waiting_who_came_during_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put()
    gate = gevent.event.Event()
    monkeypatch.setattr(os, "fdatasync", lambda _: wait_for_event(gate, "the test") or {}["a bug"])
    first, second = bench.put(), bench.put()
    gate.set()
    bench.pass_time(SECOND)
    assert not ended_well(first) and not ended_well(second)


def test_a_bug_after_a_wait_for_the_names_of_channels_keeps_nobody_waiting(
    directory: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(directory, when_settled=gevent.spawn)
    bench.put()
    disk.bad.add(bench.file_name)
    with monkeypatch.context() as patch:
        patch.setattr(UnsyncedFiles, "error_of", None)
        assert not ended_well(bench.put())
    assert ended_well(bench.put()), "in a new file"


# --- a slow one


def test_a_sync_that_takes_long_slows_its_topic_down(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, pool = Bench(directory), GatedPool()
    bench.topic.slow_writer = SlowWriter(bench.topic, bench.log, pool, bench.disk_speed)
    monkeypatch.setattr(os, "fdatasync", lambda _: wait_for_event(pool.gate, "the test"))
    first = bench.put()
    bench.pass_time(99 * MS)
    assert not bench.disk_speed.is_slow
    bench.pass_time(MS)
    assert bench.disk_speed.is_slow
    assert bench.topic.is_slow
    second = bench.put()
    assert bench.topic.next_seq == 1, "it waits for a thread"
    pool.gate.set()
    for _ in range(3):
        bench.settle()
    assert ended_well(first)
    assert ended_well(second)
    assert not bench.disk_speed.is_slow
    assert not bench.topic.is_slow
    assert bench.topic.next_seq == 2


def test_a_sync_that_is_over_slows_nothing_down(directory: Path) -> None:
    """It waits for the names of channels, which may take long."""
    gate = gevent.event.Event()
    bench = Bench(
        directory, when_settled=lambda call: gevent.spawn(lambda: (wait_for_event(gate, "the test"), call()))
    )
    publisher = bench.put()
    bench.pass_time(SECOND)
    assert publisher.holds == 1 and not bench.disk_speed.is_slow
    gate.set()
    bench.settle()
    assert ended_well(publisher)


# --- publishers that share a sync


def test_a_sync_waits_for_those_that_the_last_one_answered(bench: Bench, disk: Disk) -> None:
    assert all(map(ended_well, bench.put_together(3)))
    before = len(disk.syncs)
    early = [bench.put(), bench.put()]
    assert [publisher.holds for publisher in early] == [1, 1]
    assert len(disk.syncs) == before
    late = bench.put()
    assert all(map(ended_well, [*early, late]))
    assert len(disk.syncs) == before + 1


def test_a_sync_waits_no_longer_than_a_millisecond_and_the_next_ones_not_at_all(bench: Bench) -> None:
    bench.put_together(3)
    alone = bench.put()
    assert alone.holds == 1
    bench.pass_time(MS)
    assert ended_well(alone)
    for _ in range(10):
        assert ended_well(bench.put())


# --- many topics


class ManyTopics:
    """Topics that are synced some time after a write, as with the default flags."""

    def __init__(self, directory: Path, count: int) -> None:
        self.bench = Bench(directory, every=2500)
        self.synced = self.bench.synced
        self.topics: list[Any] = [self.bench.new_topic(f"t{number}") for number in range(count)]

    def put(self, *topics: Topic) -> None:
        for topic in topics:
            publish(topic, b"x")
        self.bench.world.run()

    @property
    def failed(self) -> list[str]:
        """The topics whose last sync failed."""
        return [topic.name for topic in self.topics if topic.log.syncs.error_of(0)]

    def pass_time(self, ns: int) -> None:
        self.bench.pass_time(ns)
        self.bench.sync.join()


@pytest.fixture
def many(directory: Path) -> ManyTopics:
    return ManyTopics(directory, 3)


@pytest.fixture
def very_many(directory: Path) -> ManyTopics:
    many = ManyTopics(directory, 300)
    many.put(*many.topics)
    return many


def test_a_topic_with_much_time_left_is_synced_later(many: ManyTopics) -> None:
    early, late = many.topics[:2]
    many.put(early)
    many.bench.pass_time(SECOND)
    many.put(late)
    many.bench.pass_time(SECOND)
    assert (early.unsynced, late.unsynced) == (0, 1)
    many.bench.pass_time(SECOND)
    assert late.unsynced == 0


def test_a_file_that_fails_does_not_concern_other_topics(many: ManyTopics, disk: Disk) -> None:
    many.put(*many.topics)
    disk.bad.add(many.topics[1].log.files[0].path.name)
    many.bench.pass_time(2 * SECOND)
    assert many.failed == ["t1"]
    assert [type(error) for error in many.synced] == [type(None), OSError, type(None)]
    disk.bad.clear()
    many.bench.pass_time(SECOND)
    assert many.failed == []


def test_a_bug_with_one_topic_does_not_stop_the_others(
    many: ManyTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = many.bench.sync._note
    many.put(*many.topics)
    with monkeypatch.context() as patch:
        patch.setattr(
            many.bench.sync, "_note", lambda sync: 1 // 0 if sync.topic is many.topics[0] else note(sync)
        )
        many.bench.pass_time(2 * SECOND)
    assert many.synced == [None, None]
    many.put(*many.topics)
    many.bench.pass_time(2 * SECOND)
    assert many.synced == [None] * 5


@pytest.mark.skipif(
    file_system_of(Path("/tmp")) not in ("ext4", "tmpfs", "xfs"), reason="its files are synced one by one"
)
def test_one_sync_serves_many_topics_whose_time_has_come(very_many: ManyTopics, disk: Disk) -> None:
    very_many.put(very_many.topics[0])
    very_many.pass_time(2 * SECOND)
    assert len(disk.syncs) == 1, "for the cache of the disk"
    assert very_many.synced == [None] * 300
    files = [file for topic in very_many.topics for file in topic.log.files]
    assert [file.synced_offset for file in files] == [file.end_offset for file in files]
    very_many.put(*very_many.topics)
    very_many.pass_time(2 * SECOND)
    assert len(disk.syncs) == 2


def test_each_topic_gets_its_own_result_where_one_call_cannot_sync_them(
    very_many: ManyTopics, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncing, "file_system_of", lambda _: "fuse")
    disk.bad.add("t7.00000000000000000000.log")
    very_many.pass_time(2 * SECOND)
    assert len(disk.syncs) == 300 + 1, "and their directory once"
    assert [type(error) for error in very_many.synced].count(OSError) == 1
    assert very_many.failed == ["t7"]
    disk.bad.clear()
    very_many.pass_time(SECOND)
    assert very_many.synced[300:] == [None]


def test_a_bug_in_a_common_sync_leaves_all_unsynced(
    very_many: ManyTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(syncing, "file_system_of", None)
        very_many.pass_time(2 * SECOND)
    assert len(very_many.synced) == 300 and None not in very_many.synced
    very_many.pass_time(SECOND)
    assert very_many.synced[300:] == [None] * 300


def test_a_power_cut_after_a_common_sync_of_which_the_disk_reports_one_error_late(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape(directory / "before")
    tape.root.mkdir()
    failed = str(tape.root / "t7.00000000000000000000.log")
    platter = Platter(Random(0))

    def syncfs(_: int) -> int:
        tape.sync_all(failed)
        many.put(many.topics[5])  # it comes too late for this sync
        return 0

    def left_after(ops: list[Op]) -> dict[str, int]:
        """Return the messages of each topic after a power cut."""
        for op in ops:
            platter.do(op)
        after = directory / f"after {len(ops)}"
        after.mkdir()
        for path, content in next(platter.states(0)).items():
            (after / Path(path).name).write_bytes(content)
        topics = start_broker(World(), after).topics
        return {name: topic.depth for name, topic in topics.items()}

    calls = SimpleNamespace(syncfs=syncfs, late_error=lambda fd: errno.EIO if path_of(fd) == failed else 0)
    monkeypatch.setattr(syncing, "_kernel_calls", lambda: calls)
    monkeypatch.setattr(syncing, "file_system_of", lambda _: "ext4")
    with tape.recording():
        many = ManyTopics(tape.root, 256)
        many.put(*many.topics)
        many.pass_time(2 * SECOND)
        assert many.failed == ["t7"]
        synced = {topic.name: topic.log.files[-1].synced_seq for topic in many.topics}
        assert synced == dict.fromkeys(synced, 1) | {"t7": 0}
        end = len(tape.ops)
        many.put(many.topics[7])
        many.pass_time(2 * SECOND)
        assert many.failed == []
    assert left_after(tape.ops[:end]) == synced
    assert left_after(tape.ops[end:]) == dict.fromkeys(synced, 1) | {"t5": 2, "t7": 2}
