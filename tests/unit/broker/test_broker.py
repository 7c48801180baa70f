"""Operations wait for threads that write to a slow disk; in the meantime their topic is written to, or deleted."""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.lifetime.shutdown import close as close_broker
from nsqd_py.broker.upkeep.mending import LogFiles, Repairs
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epochs
from tests.support.broker_life import TOPIC, Life
from tests.support.disk_calls import watched
from tests.unit.broker.test_disk_io import SlowLife
from tests.unit.fakes import FakeThreadPool, GatedPool, World, close_descriptors, start_broker


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
def life(directory: Path) -> DeletingLife:
    return DeletingLife(directory)


def test_a_topic_is_removed_after_what_was_published_meanwhile_is_written(life: DeletingLife) -> None:
    writers = GatedPool()
    topic = life.topic
    topic.slow_writer._threadpool = writers
    topic.log.leave_last_file()  # the next write makes a file
    deleting = life.start(life.broker.delete_topic, TOPIC)
    publisher = life.publish(b"in the meantime")
    gevent.sleep(0)
    life.open_gate()
    writers.gate.set()
    life.settle()
    deleting.get(timeout=40)
    assert not publisher.holds
    assert life.files() == []


class WritingLife(Life):
    """A thread writes a file of the log again, but not before the gate is open."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch, method: str) -> None:
        super().__init__(directory, lambda *_: None)
        self.create()
        self.publish(b"old")
        self.topic: Any = self.broker.topics[TOPIC]
        self.path: Path = self.topic.log.files[0].path
        self.gate = gevent.event.Event()
        real = getattr(LogFile, method)
        patch.setattr(LogFile, method, lambda file: self.gate.wait(40) and real(file))

    def begin(self) -> None:
        self.broker.removed_files.check(self.topic, self.topic.log, self.topic.log.files)
        gevent.sleep(0)


@pytest.mark.parametrize("ending", ["delete", "close"])
def test_a_log_file_that_is_being_written_back_is_waited_for(
    directory: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The thread would give a file to a topic that is deleted, or write to the place that the end of nsqd writes to."""
    life = WritingLife(directory, monkeypatch, "write_back")
    life.path.unlink()
    life.begin()
    ended = (
        gevent.spawn(life.broker.delete_topic, TOPIC)
        if ending == "delete"
        else gevent.spawn(close_broker, life.broker)
    )
    gevent.sleep(0)
    assert not life.topic.is_closed
    life.gate.set()
    ended.get(timeout=40)
    assert life.path.exists() == (ending == "close")


def test_a_file_that_is_written_again_does_not_replace_that_of_a_topic_made_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It put what was acknowledged since aside, as damaged."""
    life = WritingLife(directory, monkeypatch, "salvage")
    broker = life.broker
    mending = LogFiles(broker.services, broker.topics, broker.removed_files, Repairs(list))
    life.path.rename(directory / "moved")
    life.path.write_bytes(b"of another program")
    life.begin()
    broker.delete_topic(TOPIC)
    life.create()
    life.publish(b"new")
    life.gate.set()
    life.settle(40)
    assert mending._greenlet is None
    assert not list(directory.glob("*.damaged"))
    assert not list(directory.glob("*.compact"))
    log = broker.topics[TOPIC].log
    assert not log.files[0].is_cut()
    assert life.drain("fast") == [b"new"]


@pytest.mark.parametrize("what", ["topic", "channel"])
def test_what_was_deleted_meanwhile_is_not_emptied(life: DeletingLife, what: str) -> None:
    broker, topic = life.broker, life.topic
    if what == "topic":
        topic.pause()
        waiting = [life.start(broker.delete_topic, TOPIC), life.start(broker.empty_topic, topic)]
    else:
        channel = topic.channels["fast"]
        waiting = [
            life.start(broker.delete_channel, topic, "fast"),
            life.start(broker.empty_channel, topic, channel),
        ]
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


def epochs_of(broker: Broker) -> dict[str, Epochs]:
    return {name: topic.log.epochs for name, topic in broker.topics.items()}


def start_later(directory: Path) -> Broker:
    world = World()
    world.clock.now_ns += 1
    return start_broker(world, directory)


def keep_epochs(broker: Broker) -> None:
    broker.logs.keep_epochs()
    broker.metadata.persist()


def test_without_standbys_there_is_no_file(directory: Path) -> None:
    broker = start_broker(World(), directory)
    broker.get_topic("t")
    close_broker(broker)
    assert not (directory / EPOCHS_FILE).exists()


def test_a_log_keeps_its_epoch_over_a_restart_and_a_damaged_file_is_ignored(directory: Path) -> None:
    broker = start_broker(World(), directory)
    broker.get_topic("before")
    keep_epochs(broker)
    broker.get_topic("after")
    before = epochs_of(broker)
    assert [epoch.first_seq for epoch in before["after"]] == [0]
    close_broker(broker)
    content = (directory / EPOCHS_FILE).read_bytes()
    again = start_later(directory)
    assert epochs_of(again) == before
    again.delete_topic("after")
    assert again.get_topic("after") and epochs_of(again)["after"] > before["after"]
    close_broker(again)
    (directory / EPOCHS_FILE).write_bytes(content[:-1] + b" ")
    assert epochs_of(start_later(directory))["before"] > before["before"]


def test_a_directory_of_an_earlier_version(directory: Path) -> None:
    with tarfile.open(BEFORE_EPOCHS) as archive:
        archive.extractall(directory, filter="data")
    world = World()
    broker = start_broker(world, directory)
    keep_epochs(broker)
    given = epochs_of(broker)
    assert set(given) == {"orders", "held", "paused"}
    assert all(len(epochs) == 1 and epochs[0].first_seq == 0 for epochs in given.values())
    assert broker.topics["held"].depth == 3
    assert broker.topics["paused"].is_paused
    received = world.consumer(broker.topics["orders"].channels["fast"], rdy=100).take()
    assert {message.body for message in received} >= {b"order %d" % number for number in range(10)}
    assert {message.attempts for message in received} == {1, 2}
    close_broker(broker)
    assert epochs_of(start_later(directory)) == given


# ---- a start and a stop cost each topic a few system calls, and a topic that has not changed no write and no sync

FEW, MANY = 16, 32
CHANGES = ("write", "pwrite", "fsync", "fdatasync", "rename", "unlink", "posix_fallocate")


def each_topic(tmp_path: Path, act: Callable[[Path, int], Counter[str]]) -> dict[str, float]:
    """Return the calls that one topic more makes."""
    few, many = (act(tmp_path / str(count), count) for count in (FEW, MANY))
    return {name: (many[name] - few[name]) / (MANY - FEW) for name in many}


def counted(directory: Path, work: Callable[[], Any]) -> Counter[str]:
    calls = Counter()

    def count(name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        calls[name] += 1
        return real(*arguments)

    with watched(directory, count):
        work()
    return calls


def make(directory: Path, count: int) -> Broker:
    """Topics whose messages are finished."""
    directory.mkdir()
    world = World()
    broker = start_broker(world, directory)
    for number in range(count):
        topic = broker.get_topic(f"topic-{number}")
        channel = broker.get_channel(topic, "c")
        world.publish(topic, b"first", b"second")
        consumer = world.consumer(channel, rdy=2)
        consumer.finish(*consumer.take())
        consumer.leave()
    world.pass_time(1_000_000_000)
    broker.metadata.persist()
    return broker


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("stops", [False, True])
def test_a_start_opens_the_files_of_a_topic_once_and_a_stop_changes_none(
    tmp_path: Path, is_killed: bool, stops: bool
) -> None:
    def act(directory: Path, count: int) -> Counter[str]:
        broker = make(directory, count)
        close_descriptors(directory) if is_killed else close_broker(broker)
        if stops:
            return counted(directory, partial(close_broker, start_broker(World(), directory)))
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
        return counted(directory, partial(close_broker, make(directory, count)))

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
    broker = make(tmp_path / "data", 100)
    broker.services.threadpool = threads
    close_broker(broker)
    assert threads.most > 4
