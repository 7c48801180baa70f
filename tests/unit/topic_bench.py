"""A topic in a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nsqd_py.batch import GuidFactory, uniform_stride
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.position import Position
from nsqd_py.queue.topic import Topic
from tests.unit.fakes import FakePublisher, World, limits, sized


class FakeSyncer:
    """Notes what was written."""

    every = 1

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[Any]]] = []

    def written(self, topic: Topic, publishers: list[Any]) -> None:
        self.calls.append((topic.unsynced, publishers))


class Bench:
    """A topic with what it needs."""

    def __init__(self, directory: Path) -> None:
        self.world = World()
        self.directory = directory
        self.syncer = FakeSyncer()

    def topic(self, name: str = "orders", mem_queue_size: int = 10_000, max_bytes_per_file: int = 1 << 20) -> Topic:
        is_ephemeral = name.endswith("#ephemeral")
        log = None if is_ephemeral else TopicLog(self.directory, name, max_bytes_per_file, self.world.log.error)
        world = self.world
        return Topic(
            name,
            log,
            GuidFactory(1),
            mem_queue_size,
            world.iteration,
            world.clock,
            None if is_ephemeral else self.syncer,
            world.log,
        )

    def channel(self, topic: Topic, name: str = "ch", mem_queue_size: int = 10_000) -> Channel:
        """As a broker makes it, but for the journal."""
        world = self.world
        channel = Channel(
            name,
            Position(topic.released, topic.released),
            topic.messages,
            topic.most_unfinished,
            limits(mem_queue_size=mem_queue_size),
            world.iteration,
            world.alarms,
            world.clock,
            None,
            lambda _: None,
            keeps_batches=topic.log is None,
        )
        topic.channels[name] = channel
        topic.release()
        return channel

    def publish(self, topic: Topic, *messages: bytes, defer_ns: int = 0) -> FakePublisher:
        publisher = FakePublisher()
        body = sized(*messages)
        topic.buffer.publish(body, len(messages), uniform_stride(body, len(messages)), publisher, 7, defer_ns)
        return publisher


def drain(topic: Topic, low: int = 0) -> list[bytes]:
    """What `batch_at` gives for every number from `low` on."""
    bodies = []
    for seq in range(low, topic.next_seq):
        batch = topic.messages.batch_at(seq)
        assert batch is not None
        assert batch.first_seq <= seq < batch.end_seq
        bodies.append(batch.message(seq - batch.first_seq))
    return bodies
