"""Channels that are created while messages are published and finished."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nsqd_py.broker.creation_rate import CreationRate
from nsqd_py.diskqueue.journals.journal import Journal
from nsqd_py.errors import TooManyNewTopics
from tests.unit.fakes import SECOND, FakeClock, World, start_broker


@pytest.mark.parametrize("moment", ["while its journal is written", "before it exists", "when it exists"])
@pytest.mark.parametrize("keeps_some", [False, True])
def test_a_kill_leaves_no_channel_that_needs_removed_messages(
    directory: Path, moment: str, keeps_some: bool
) -> None:
    """The journal of a new channel has the position at which writing it began; in the meantime, files are removed."""
    world = World()
    data, left = directory / "data", directory / "left"
    data.mkdir()
    broker = start_broker(world, data, max_bytes_per_file=1000)
    topic = broker.get_topic("t")
    consumer = world.consumer(broker.get_channel(topic, "first"), rdy=100)

    def publish(count: int) -> None:
        for number in range(count):
            world.publish(topic, b"%d" % number + b"x" * 100)

    def finish_many() -> None:
        publish(40)
        taken = consumer.take()
        consumer.finish(*taken[1 if keeps_some else 0 :])
        world.pass_time(SECOND)
        broker.housekeeper.run()

    write = Journal.snapshot

    def slow_write(journal: Journal, *position: Any) -> None:
        is_second = journal.path.name == "t:second.cursor"
        if is_second and moment == "while its journal is written":
            finish_many()
        write(journal, *position)
        if is_second and moment != "while its journal is written":
            finish_many()
        if is_second and moment != "when it exists":
            shutil.copytree(data, left)

    publish(5)
    before = sorted(path.name for path in data.glob("*.log"))
    with mock.patch.object(Journal, "snapshot", slow_write):
        broker.make_channel(topic, "second")
    if moment == "when it exists":
        finish_many()
        world.pass_time(SECOND)
        broker.housekeeper.run()
        shutil.copytree(data, left)
        assert sorted(path.name for path in left.glob("*.log")) != before
    after = World()
    after.log.warning = after.log.error
    again = start_broker(after, left, max_bytes_per_file=1000)
    assert after.log.errors == []
    assert [channel.lost_count for channel in again.topics["t"].channels.values()] == [0, 0]
    broker.housekeeper.run()
    assert len(list(data.glob("*.log"))) < 45


# --- the rate of new topics and channels

HERE = "192.0.2.1:5"


def test_few_addresses_are_remembered_and_the_busiest_longest() -> None:
    clock = FakeClock()
    rate = CreationRate(10, clock)
    for _ in range(1001):
        rate.take(HERE)
    for number in range(5_000):
        rate.take(f"10.0.{number // 250}.{number % 250}:1")
    with pytest.raises(TooManyNewTopics):
        rate.take(HERE)
    clock.now_ns += SECOND // 10
    rate.take(HERE)
    with pytest.raises(TooManyNewTopics):
        rate.take(HERE)
