"""Epochs of logs: kept over a restart where somebody compares them, given to the logs of an earlier version."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.diskqueue.ranges import EPOCHS_FILE, Epochs
from tests.unit.fakes import FakeConsumer, World, close_descriptors, start_broker

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
