"""Operations wait for threads that write to a slow disk; in the meantime their topic is written to, or deleted."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.mending import LogFiles
from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.ranges import EPOCHS_FILE, Epochs
from tests.support.broker_life import TOPIC, Life
from tests.support.disk_calls import watched
from tests.unit.broker.test_disk_io import GatedPool, SlowLife
from tests.unit.fakes import FakeConsumer, FakePublisher, FakeThreadPool, World, close_descriptors, sized, start_broker


class DeletingLife(SlowLife):
    """A thread writes a journal, and nobody may delete or empty before it has."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.topic = self.broker.get_topic(TOPIC)
        self.finish_next()

    def start(self, operation: Any, *arguments: Any) -> Any:
        greenlet = gevent.spawn(operation, *arguments)
        gevent.sleep(0)
        assert not greenlet.ready()
        return greenlet

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir() if path.name.startswith(TOPIC))


@pytest.fixture
def life(tmp_path: Path) -> Iterator[DeletingLife]:
    yield DeletingLife(tmp_path)
    close_descriptors(tmp_path)


def test_a_topic_is_removed_after_what_was_published_meanwhile_is_written(life: DeletingLife) -> None:
    writers = GatedPool()
    assert life.topic.slow_writer is not None
    assert life.topic.log is not None
    life.topic.slow_writer._threadpool = writers
    life.topic.log.leave_last_file()  # the next write makes a file
    deleting = life.start(life.broker.delete_topic, TOPIC)
    publisher = life.publish(b"in the meantime")
    gevent.sleep(0)
    life.open_gate()
    writers.gate.set()
    life.settle()
    deleting.get(timeout=40)
    assert not publisher.holds
    assert life.files() == []


@pytest.mark.parametrize("ending", ["delete", "close"])
def test_a_log_file_that_is_being_written_back_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The thread would give a file to a topic that is deleted, or write to the place that the end of nsqd writes to."""
    life = Life(tmp_path, lambda *_: None)
    life.create()
    life.publish(b"1")
    topic = life.broker.topics[TOPIC]
    assert topic.log is not None
    path = topic.log.files[0].path
    gate, real = gevent.event.Event(), LogFile.write_back
    monkeypatch.setattr(LogFile, "write_back", lambda file: gate.wait(40) and real(file))
    path.unlink()
    life.broker.removed_files.check(topic, topic.log, topic.log.files)
    gevent.sleep(0)
    begun = gevent.spawn(life.broker.delete_topic, TOPIC) if ending == "delete" else gevent.spawn(life.broker.close)
    gevent.sleep(0)
    assert not topic.is_closed
    gate.set()
    begun.get(timeout=40)
    assert path.exists() == (ending == "close")
    close_descriptors(tmp_path)


def test_a_file_that_is_written_again_does_not_replace_that_of_a_topic_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It put what was acknowledged since aside, as damaged."""
    life = Life(tmp_path, lambda *_: None)
    life.create()
    life.publish(b"old")
    topic, broker = life.broker.topics[TOPIC], life.broker
    assert topic.log is not None
    (file,) = topic.log.files
    mending = LogFiles(broker.services, broker.topics, broker.removed_files)
    gate, real = gevent.event.Event(), LogFile.salvage
    monkeypatch.setattr(LogFile, "salvage", lambda file: gate.wait(40) and real(file))
    file.path.rename(tmp_path / "moved")
    file.path.write_bytes(b"of another program")
    broker.removed_files.check(topic, topic.log, topic.log.files)
    gevent.sleep(0)
    broker.delete_topic(TOPIC)
    life.create()
    life.publish(b"new")
    gate.set()
    for _ in range(10):
        life.settle()
    assert mending._greenlet is None
    assert not list(tmp_path.glob("*.damaged"))
    assert not list(tmp_path.glob("*.compact"))
    log = broker.topics[TOPIC].log
    assert log is not None
    assert not log.files[0].is_cut()
    assert life.drain("fast") == [b"new"]
    close_descriptors(tmp_path)


@pytest.mark.parametrize("what", ["topic", "channel"])
def test_what_was_deleted_meanwhile_is_not_emptied(life: DeletingLife, what: str) -> None:
    broker, topic = life.broker, life.topic
    if what == "topic":
        topic.pause()
        waiting = [life.start(broker.delete_topic, TOPIC), life.start(broker.empty_topic, topic)]
    else:
        channel = topic.channels["fast"]
        waiting = [life.start(broker.delete_channel, topic, "fast"), life.start(broker.empty_channel, topic, channel)]
    life.open_gate()
    for operation in waiting:
        operation.get(timeout=40)
    broker.metadata.persist()
    assert f"{TOPIC}:fast.cursor" not in life.files()
    assert what == "channel" or life.files() == []


def test_a_topic_that_was_made_again_meanwhile_stays(life: DeletingLife) -> None:
    first = life.start(life.broker.delete_topic, TOPIC)
    first.link(lambda _: life.broker.get_topic(TOPIC))
    second = life.start(life.broker.delete_topic, TOPIC)
    life.open_gate()
    second.get(timeout=40)
    assert life.broker.topics.get(TOPIC) is not None


# ---- epochs of logs: kept over a restart where somebody compares them, given to the logs of an earlier version

# Written by the last version without epochs: `orders` with 10 messages, of which channel `fast` had 4 in flight, and a
# deferred one; `held` with 3 and no channel; `paused` with 1.
BEFORE_EPOCHS = Path(__file__).parents[2] / "data" / "standby-before-epochs.tar.gz"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    close_descriptors(tmp_path)


def _epochs(broker: Broker) -> dict[str, Epochs]:
    return {name: topic.log.epochs for name, topic in broker.topics.items() if topic.log is not None}


def _later() -> World:
    world = World()
    world.clock.now_ns += 1
    return world


def test_without_standbys_there_is_no_file(directory: Path) -> None:
    broker = start_broker(World(), directory)
    broker.get_topic("t")
    broker.close()
    assert not (directory / EPOCHS_FILE).exists()


def test_a_log_keeps_its_epoch_over_a_restart(directory: Path) -> None:
    broker = start_broker(World(), directory)
    broker.get_topic("before")
    broker.keeps_epochs = True
    broker.metadata.persist()
    broker.get_topic("after")
    before = _epochs(broker)
    assert [epoch.first_seq for epoch in before["after"]] == [0]
    broker.close()
    again = start_broker(_later(), directory)
    assert _epochs(again) == before
    again.delete_topic("after")
    assert again.get_topic("after") and _epochs(again)["after"] > before["after"]


def test_a_damaged_file_is_ignored(directory: Path) -> None:
    broker = start_broker(World(), directory)
    broker.keeps_epochs = True
    broker.metadata.persist()
    broker.get_topic("t")
    before = _epochs(broker)
    broker.close()
    content = (directory / EPOCHS_FILE).read_bytes()
    (directory / EPOCHS_FILE).write_bytes(content[:-1] + b" ")
    assert _epochs(start_broker(_later(), directory))["t"] > before["t"]


def test_a_directory_of_an_earlier_version(directory: Path) -> None:
    with tarfile.open(BEFORE_EPOCHS) as archive:
        archive.extractall(directory, filter="data")
    world = World()
    broker = start_broker(world, directory)
    broker.keeps_epochs = True
    broker.metadata.persist()
    given = _epochs(broker)
    assert set(given) == {"orders", "held", "paused"}
    assert all(len(epochs) == 1 and epochs[0].first_seq == 0 for epochs in given.values())
    assert broker.topics["held"].depth == 3
    assert broker.topics["paused"].is_paused
    consumer = FakeConsumer(world, rdy=100).subscribe(broker.topics["orders"].channels["fast"])
    world.run()
    received = consumer.take()
    assert {message.body for message in received} >= {b"order %d" % number for number in range(10)}
    assert {message.attempts for message in received} == {1, 2}
    broker.close()
    assert _epochs(start_broker(_later(), directory)) == given


# ---- a start and a stop cost each topic a few system calls, and a topic that has not changed no write and no sync

FEW, MANY = 16, 32
CHANGES = ("write", "pwrite", "fsync", "fdatasync", "rename", "unlink", "posix_fallocate")


def publish(world: World, broker: Broker, count: int) -> None:
    for number in range(count):
        topic = broker.get_topic(f"topic-{number}")
        broker.get_channel(topic, "c")
        topic.buffer.publish(sized(b"first", b"second"), 2, 10, FakePublisher(), 0, 0)
    world.run()
    for number in range(count):
        consumer = FakeConsumer(world, rdy=2).subscribe(broker.topics[f"topic-{number}"].channels["c"])
        consumer.finish(*consumer.take())
        consumer.leave()
    world.pass_time(1_000_000_000)


def each_topic(tmp_path: Path, act: Callable[[Path, int], Counter[str]]) -> dict[str, float]:
    """Return the calls that one topic more makes."""
    few, many = (act(tmp_path / str(count), count) for count in (FEW, MANY))
    return {name: (many[name] - few[name]) / (MANY - FEW) for name in many}


def counted(directory: Path, work: Callable[[], Any]) -> Counter[str]:
    calls: Counter[str] = Counter()

    def count(name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        calls[name] += 1
        return real(*arguments)

    with watched(directory, count):
        work()
    return calls


def make(directory: Path, count: int) -> tuple[World, Broker]:
    directory.mkdir()
    world = World()
    broker = start_broker(world, directory)
    publish(world, broker, count)
    broker.metadata.persist()
    return world, broker


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("stops", [False, True])
def test_a_start_opens_the_files_of_a_topic_once_and_a_stop_changes_none(tmp_path: Path, is_killed: bool, stops: bool) -> None:
    def act(directory: Path, count: int) -> Counter[str]:
        _, broker = make(directory, count)
        close_descriptors(directory) if is_killed else broker.close()
        if stops:
            return counted(directory, start_broker(World(), directory).close)
        calls = counted(directory, lambda: start_broker(World(), directory))
        close_descriptors(directory)
        return calls

    calls = each_topic(tmp_path, act)
    expected = dict.fromkeys(CHANGES, 0)
    if stops:
        expected["fdatasync"] = int(is_killed)  # the killed one may not have synced it
    else:
        assert calls["open"] == 2  # the log and the journal
    assert {name: calls.get(name, 0) for name in CHANGES} == expected
    assert sum(calls.values()) <= 8, calls


def test_a_stop_writes_and_syncs_what_changed(tmp_path: Path) -> None:
    def act(directory: Path, count: int) -> Counter[str]:
        return counted(directory, make(directory, count)[1].close)

    calls = each_topic(tmp_path, act)
    assert (calls.get("rename", 0), calls["fsync"] + calls["fdatasync"]) == (0, 2)  # the journal and the log
    assert sum(calls.values()) <= 16, calls


def test_a_stop_syncs_many_topics_at_once(tmp_path: Path) -> None:
    class Threads(FakeThreadPool):
        running = most = 0

        def apply(self, function: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
            self.running += 1
            self.most = max(self.most, self.running)
            gevent.sleep(0)
            self.running -= 1
            return super().apply(function, arguments)

    threads = Threads()
    _, broker = make(tmp_path / "data", 100)
    broker.services.threadpool = threads
    broker.close()
    assert threads.most > 4
