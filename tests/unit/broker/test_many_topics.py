"""A start and a stop cost each topic a few system calls, and a topic that has not changed no write and no sync.

With 20,000 topics, a rename or a sync for each of them takes longer than everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import pytest

from nsqd_py.broker.broker import Broker
from tests.support.disk_calls import watched
from tests.unit.fakes import FakeConsumer, FakePublisher, FakeThreadPool, World, close_descriptors, sized, start_broker

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
