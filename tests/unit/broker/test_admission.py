"""Channels that are created while messages are published and finished."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nsqd_py.batch import uniform_stride
from nsqd_py.broker.admission import CreationRate
from nsqd_py.diskqueue.journal import Journal
from nsqd_py.errors import TooManyNewTopics
from nsqd_py.queue.topic import Topic
from tests.unit.fakes import SECOND, FakeConsumer, FakePublisher, World, close_descriptors, sized, start_broker


def publish(world: World, topic: Topic, count: int) -> None:
    for number in range(count):
        body = sized(b"%d" % number + b"x" * 100)
        topic.buffer.publish(body, 1, uniform_stride(body, 1), FakePublisher(), 0, 0)
        world.run()


@pytest.mark.parametrize("moment", ["while its journal is written", "before it exists", "when it exists"])
@pytest.mark.parametrize("keeps_some", [False, True])
def test_a_kill_leaves_no_channel_that_needs_removed_messages(tmp_path: Path, moment: str, keeps_some: bool) -> None:
    """The journal of a new channel has the position at which writing it began; in the meantime, files are removed."""
    world = World()
    directory, left = tmp_path / "data", tmp_path / "left"
    directory.mkdir()
    broker = start_broker(world, directory, max_bytes_per_file=1000)
    topic = broker.get_topic("t")
    first = broker.get_channel(topic, "first")
    consumer = FakeConsumer(world, rdy=100)
    consumer.subscribe(first)
    publish(world, topic, 5)
    before = list(map(str, directory.glob("*.log")))

    def finish_all() -> None:
        world.run()
        taken = consumer.take()
        consumer.finish(*taken[1 if keeps_some else 0 :])
        world.pass_time(SECOND)
        broker.housekeeper.run()

    write = Journal.snapshot

    def slow_write(journal: Journal, *position: Any) -> None:
        if journal.path.name != "t:second.cursor":
            write(journal, *position)
            return
        if moment == "while its journal is written":
            publish(world, topic, 40)
            finish_all()
        write(journal, *position)
        if moment != "while its journal is written":
            publish(world, topic, 40)
            finish_all()
        if moment != "when it exists":
            shutil.copytree(directory, left)

    with mock.patch.object(Journal, "snapshot", slow_write):
        broker.make_channel(topic, "second")
    if moment == "when it exists":
        publish(world, topic, 40)
        finish_all()
        world.pass_time(SECOND)
        broker.housekeeper.run()
        shutil.copytree(directory, left)
        assert list(map(str, left.glob("*.log"))) != before
    close_descriptors(directory)
    after = World()
    after.log.warning = after.log.error
    again = start_broker(after, left, max_bytes_per_file=1000)
    close_descriptors(left)
    assert after.log.errors == []
    assert [channel.lost_count for channel in again.topics["t"].channels.values()] == [0, 0]
    broker.housekeeper.run()
    assert len(list(directory.glob("*.log"))) < 45


# --- the rate of new topics and channels

HERE = "192.0.2.1:5"


@pytest.fixture
def clock() -> list[int]:
    """The time in ns, in a list so that a test can change it."""
    return [10**18]


@pytest.fixture
def rate(clock: list[int]) -> CreationRate:
    return CreationRate(10, lambda: clock[0])


def test_few_addresses_are_remembered_and_the_busiest_longest(rate: CreationRate, clock: list[int]) -> None:
    for _ in range(1001):
        rate.take(HERE)
    for number in range(10_000):
        rate.take(f"10.0.{number // 250}.{number % 250}:1")
    with pytest.raises(TooManyNewTopics):
        rate.take(HERE)
    clock[0] += 10**8
    rate.take(HERE)
    with pytest.raises(TooManyNewTopics):
        rate.take(HERE)
