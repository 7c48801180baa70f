"""A topic in a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gevent

from nsqd_py.broker.disk.slow_disk import SlowWriter
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.protocol.message_ids import GuidFactory
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.position import Position
from nsqd_py.queue.topic import DiskUse, Topic
from tests.unit.fakes import FakePublisher, World, limits
from tests.unit.log_bench import read_all


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
        self.disk = DiskUse()

    def topic(
        self, name: str = "orders", mem_queue_size: int = 10_000, max_bytes_per_file: int = 1 << 20
    ) -> Topic:
        is_ephemeral = name.endswith("#ephemeral")
        world = self.world
        log = None if is_ephemeral else TopicLog(self.directory, name, max_bytes_per_file, world.log.error)
        syncer = None if is_ephemeral else self.syncer
        return Topic(
            name,
            log,
            GuidFactory(1),
            mem_queue_size,
            world.iteration,
            world.clock,
            syncer,
            world.log,
            disk=self.disk,
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


class SlowBench(Bench):
    """A topic on a slow disk with a channel and a message. `threads` write the next ones."""

    def __init__(self, directory: Path, threads: Any, max_bytes_per_file: int = 1 << 20) -> None:
        super().__init__(directory)
        self.threads = threads
        self.disk_speed = self.world.disk_speed
        self.disk = DiskUse(self.disk_speed, make_writer=self._make_writer)
        self.slow = self.topic(max_bytes_per_file=max_bytes_per_file)
        self.of_slow = self.channel(self.slow)
        self.world.publish(self.slow, b"before")
        self.log: Any = self.slow.log
        self.writer: Any = self.slow.slow_writer
        self.disk_speed.stall(self)

    def _make_writer(self, topic: Topic[Any]) -> SlowWriter:
        assert topic.log is not None
        return SlowWriter(topic, topic.log, self.threads, self.disk_speed)

    def put(self, *messages: bytes) -> FakePublisher:
        """Publish, and let a thread begin."""
        publisher = self.world.publish(self.slow, *messages)
        gevent.sleep(0)
        return publisher

    def bodies(self) -> list[bytes]:
        """All messages, whose numbers have no gap."""
        messages = read_all(self.log)
        assert [seq for seq, _ in messages] == list(range(len(messages)))
        return [body for _, body in messages]


def drain(topic: Topic) -> list[bytes]:
    """What `batch_at` gives for every number."""
    bodies = []
    for seq in range(topic.next_seq):
        batch = topic.messages.batch_at(seq)
        assert batch.first_seq <= seq < batch.end_seq
        bodies.append(batch.message(seq - batch.first_seq))
    return bodies
