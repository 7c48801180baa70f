"""Epochs of logs: made at the creation, kept over a restart, given to the logs of an earlier version."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.metadata import METADATA_FILE
from nsqd_py.diskqueue.epochs import Epochs
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


def test_a_log_keeps_its_epoch_over_a_restart(directory: Path) -> None:
    broker = start_broker(World(), directory)
    broker.get_topic("t")
    before = _epochs(broker)
    assert [epoch.first_seq for epoch in before["t"]] == [0]
    broker.close()
    assert _epochs(start_broker(World(), directory)) == before


def test_many_logs_keep_their_epochs(directory: Path) -> None:
    """Another library writes the JSON of many topics."""
    broker = start_broker(World(), directory)
    broker.want_metadata = lambda: None  # type: ignore[method-assign]
    for number in range(150):
        broker.get_topic(f"t{number}")
    before = _epochs(broker)
    broker.close()
    assert _epochs(start_broker(World(), directory)) == before


def test_a_log_that_is_created_again_has_another_epoch(directory: Path) -> None:
    broker = start_broker(World(), directory)
    broker.get_topic("t")
    before = _epochs(broker)
    broker.delete_topic("t")
    broker.get_topic("t")
    assert _epochs(broker)["t"][0].number > before["t"][0].number


def test_a_directory_of_an_earlier_version(directory: Path) -> None:
    with tarfile.open(BEFORE_EPOCHS) as archive:
        archive.extractall(directory, filter="data")
    world = World()
    broker = start_broker(world, directory)
    broker.persist_metadata()
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
    assert _epochs(start_broker(World(), directory)) == given


def test_what_an_earlier_version_leaves_of_the_metadata(directory: Path) -> None:
    """It drops the epochs: the logs get new ones, so that a follower takes none of them for what it was before."""
    broker = start_broker(World(), directory)
    broker.get_topic("t")
    before = _epochs(broker)
    broker.close()
    path = directory / METADATA_FILE
    document = json.loads(path.read_bytes())
    for entry in document["topics"]:
        del entry["epochs"]
    path.write_text(json.dumps(document))
    world = World()
    world.clock.now_ns += 1
    after = _epochs(start_broker(world, directory))
    assert after["t"][0].number > before["t"][0].number
