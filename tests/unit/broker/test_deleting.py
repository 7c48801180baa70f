"""Operations wait for threads that write to a slow disk; in the meantime their topic is written to, or deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from tests.support.broker_life import TOPIC
from tests.unit.broker.test_disk_io import GatedPool
from tests.unit.broker.test_journal_writing import SlowLife
from tests.unit.fakes import close_descriptors


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
