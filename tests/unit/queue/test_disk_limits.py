"""What may be written: limits of a topic, of all, and what is left of the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from nsqd_py.queue.topic import Topic
from nsqd_py.settings.kinds import ByTopic
from tests.support.broker_life import TOPIC, Life
from tests.unit.fakes import SECOND, close_descriptors

MIB = 1 << 20
KIB = 1 << 10
DISK_BYTES = 1 << 41
RECORD = 56 + 4 + KIB  # of one message


class Room:
    """A broker on a disk with so many bytes free next to its logs, and publishers of 1 KiB."""

    life: Life

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_bytes = 1 << 40
        self._directory = directory
        monkeypatch.setattr(os, "statvfs", self._statvfs)

    def _statvfs(self, _: object) -> SimpleNamespace:
        free_bytes = max(0, self.free_bytes - self.written_bytes)
        return SimpleNamespace(f_bavail=free_bytes, f_blocks=DISK_BYTES, f_frsize=1)

    def start(self, **options: object) -> Life:
        self.life = Life(self._directory, lambda *_: None, **({"max_bytes_per_file": 64 * KIB} | options))
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

    def publish_to(self, name: str, size: int = KIB) -> bool:
        """True when another topic takes a message of that size."""
        topic = self.life.broker.get_topic(name)
        before = topic.next_seq
        topic.buffer.publish(size.to_bytes(4, "big") + b"x" * size, 1, 4 + size, None, 0)
        self.life.settle()
        return topic.next_seq > before

    @property
    def written_bytes(self) -> int:
        if not hasattr(self, "life"):
            return 0
        return sum(
            topic.log.size_bytes for topic in self.life.broker.topics.values() if topic.log is not None
        )

    @property
    def refusals_told(self) -> int:
        errors = self.life.world.log.errors
        return sum("publishing is refused" in error for error in errors)

    def pass_look(self) -> None:
        self.life.pass_time(SECOND // 2)

    @property
    def health(self) -> str | None:
        return self.life.broker.health()


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    yield Room(tmp_path, monkeypatch)
    close_descriptors(tmp_path)


def test_the_reserve_stays_free(room: Room) -> None:
    room.free_bytes = 10 * MIB
    life = room.start(min_free_disk_bytes=9 * MIB)
    life.create()
    room.topic.quota_bytes = 0
    room.fill()
    assert room.written_bytes <= MIB
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


def test_what_is_left_is_a_part_of_the_disk_or_of_the_limit(room: Room) -> None:
    broker = room.start(min_free_disk_bytes=DISK_BYTES // 10).broker
    assert room.life.publish(b"x").failures == []
    assert broker.space.left_percent() == 39  # half of it is free, and a tenth is reserved
    room.free_bytes = DISK_BYTES // 100
    assert broker.space.left_percent() == 0


def test_what_never_fits_is_no_trouble_of_the_disk(room: Room) -> None:
    life = room.start(max_topic_bytes=ByTopic(10 * KIB))
    assert life.publish(b"x" * 20 * KIB).failures
    assert room.health is None
    assert not life.publish(b"x").failures


def test_room_that_others_were_granted_and_do_not_use_is_given(room: Room) -> None:
    life = room.start(max_disk_bytes=MIB)
    for number in range(20):
        assert room.publish_to(f"other-{number}", size=10)
    room.fill()
    assert MIB - RECORD < room.written_bytes <= MIB, "no time passed"
    for number in range(20):
        assert not room.publish_to(f"other-{number}")
    assert room.refusals_told == 1
    assert MIB - RECORD < room.written_bytes <= MIB
    life.pass_time(SECOND)
    assert not room.publish_to("other-1")
    assert room.refusals_told == 1, "a look at the disk that finds a few bytes is no news"
    assert room.health is not None
