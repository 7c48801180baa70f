"""What may be written: limits of a topic, of all, and what is left of the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from nsqd_py.topic import Topic
from nsqd_py.topic_rules import ByTopic
from tests.support.broker_life import TOPIC, Life
from tests.unit.fakes import SECOND, close_descriptors

MIB = 1 << 20
KIB = 1 << 10
RECORD = 56 + 4 + KIB  # of one message


class Room:
    """A broker on a disk with so many bytes free, and publishers of 1 KiB."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_bytes = 1 << 40
        self._directory = directory
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=self.free_bytes, f_frsize=1))

    def start(self, **options: object) -> Life:
        self.life = Life(self._directory, lambda *_: None, max_bytes_per_file=64 * KIB, **options)
        return self.life

    @property
    def topic(self) -> Topic:
        return self.life.broker.get_topic(TOPIC)

    def fill(self, most: int = 5000) -> int:
        """Publish until it is refused; how often it was not."""
        for count in range(most):
            if self.life.publish(b"x" * KIB).failures:
                return count
        raise AssertionError("never refused")

    def pass_look(self) -> None:
        self.life.pass_time(SECOND // 2)

    @property
    def health(self) -> str | None:
        return self.life.broker.health()


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    yield Room(tmp_path, monkeypatch)
    close_descriptors(tmp_path)


def test_a_topic_takes_what_it_may_and_not_a_byte_more(room: Room) -> None:
    room.start(max_topic_bytes=ByTopic(MIB))
    room.fill()
    log = room.topic.log
    assert log is not None
    assert MIB - RECORD - 16 * 64 < log.size_bytes <= MIB  # a header a file
    assert room.health == f"disk: the log of topic {TOPIC} has the {MIB} bytes of --max-topic-bytes"
    assert room.life.broker.disk.write_errors == 0, "it is no error of the disk"


def test_another_topic_has_room(room: Room) -> None:
    room.start(max_topic_bytes=ByTopic(MIB, (("other", 0),)))
    room.fill()
    room.life.broker.get_topic("other").publish(b"\0\0\0\1x", 1, 5, None, 0)
    room.life.settle()
    assert room.life.broker.get_topic("other").next_seq == 1


def test_there_is_room_again_when_consumers_are_done(room: Room) -> None:
    life = room.start(max_topic_bytes=ByTopic(MIB))
    life.create()
    before = room.fill()
    assert life.drain("fast")
    room.pass_look()
    assert room.health is not None
    assert len(life.drain("slow")) == before
    room.pass_look()
    assert room.health is None
    assert room.fill() == pytest.approx(before, abs=1), "the file that is written to went, too"


def test_all_topics_together(room: Room) -> None:
    life = room.start(max_disk_bytes=MIB)
    life.create()
    room.fill()
    topic = life.broker.get_topic("other")
    topic.publish(b"\0\0\x04\0" + b"x" * KIB, 1, 4 + KIB, None, 0)
    life.settle()
    assert topic.next_seq == 0
    assert room.health == f"disk: all logs together have the {MIB} bytes of --max-disk-bytes"
    for channel in ("fast", "slow"):
        life.drain(channel)
    room.pass_look()
    assert room.health is None


def test_the_reserve_stays_free(room: Room) -> None:
    room.free_bytes = 10 * MIB
    life = room.start(min_free_disk_bytes=9 * MIB)
    life.create()
    room.topic.room_bytes = 0
    written = room.fill() * RECORD
    assert written <= MIB, "what was granted is counted before the disk is looked at again"
    room.free_bytes -= MIB
    assert room.health == f"disk: no more than the {9 * MIB} bytes of --min-free-disk-bytes are free"
    consumer = life.consumer("fast", rdy=10)
    life.settle()
    received = consumer.take()
    assert len(received) == 10, "consuming goes on"
    assert consumer.finish(*received) == []
    room.pass_look()
    assert room.health is not None
    room.free_bytes = 20 * MIB
    room.pass_look()
    assert room.health is None
    assert not life.publish(b"y").failures


def test_a_shortage_that_nobody_publishes_into_is_seen(room: Room) -> None:
    room.start(min_free_disk_bytes=MIB)
    assert room.health is None
    room.free_bytes = 0
    room.pass_look()
    assert room.health is not None


def test_little_space_is_not_taken_ahead(room: Room) -> None:
    life = room.start()
    life.publish(b"x")
    (path,) = life.directory.glob("*.log")
    assert path.stat().st_size > 10 * KIB
    room.free_bytes = 100 * MIB
    room.pass_look()
    life.publish(b"x")
    assert path.stat().st_size < KIB
    room.free_bytes = 1 << 40
    room.pass_look()
    for _ in range(2):
        life.publish(b"x")
    assert path.stat().st_size > 10 * KIB


def test_what_never_fits_is_no_trouble_of_the_disk(room: Room) -> None:
    life = room.start(max_topic_bytes=ByTopic(10 * KIB))
    assert life.publish(b"x" * 20 * KIB).failures
    assert room.health is None
    assert not life.publish(b"x").failures


def test_nothing_is_looked_at_while_nobody_publishes(room: Room) -> None:
    life = room.start()
    life.publish(b"x")
    life.pass_time(10 * SECOND)
    assert life.broker.space._alarm.due_ns is None
