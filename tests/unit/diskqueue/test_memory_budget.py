"""Memory is bounded in bytes, over all topics: of logs copies are let go, ephemeral topics lose the newest."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.diskqueue.memory_budget import MemoryBudget
from nsqd_py.queue.topic import Topic
from nsqd_py.settings.kinds import ByTopic
from tests.unit.fakes import World, start_broker

KIB = 1 << 10
LIMIT = 256 * KIB


class FakeHolder:
    """Holds as much as it is asked to, and counts how often it is asked for its size."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held_bytes = self.questions = 0

    @property
    def memory_bytes(self) -> int:
        self.questions += 1
        return self._held_bytes

    def hold(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self._budget.note(self, size_bytes)

    def shrink(self, most_bytes: int) -> None:
        change, self._held_bytes = most_bytes - self._held_bytes, most_bytes
        self._budget.note(self, change)


class Scene:
    """A broker with little memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def start(self, mem_queue_bytes: int = LIMIT, **options: object) -> Broker:
        self.world = World()
        self.publish, self.consumer = self.world.publish, self.world.consumer
        self.broker = start_broker(self.world, self.directory, mem_queue_bytes=mem_queue_bytes, **options)
        return self.broker

    def topic(self, name: str, *channels: str) -> Topic:
        topic = self.broker.get_topic(name)
        for channel in channels:
            self.broker.get_channel(topic, channel)
        return topic

    @property
    def memory(self) -> MemoryBudget:
        return self.broker.memory


@pytest.fixture
def scene(directory: Path) -> Scene:
    return Scene(directory)


# --- who has to let go


def test_those_who_hold_most_let_go_first() -> None:
    budget = MemoryBudget(800)
    small, large, buffers = FakeHolder(budget), FakeHolder(budget), 200
    small.hold(100)
    large.hold(500)
    budget.note_buffers(buffers)
    assert (small.memory_bytes, large.memory_bytes) == (100, 500), "it fits"
    small.hold(10)
    assert (small.memory_bytes, large.memory_bytes) == (110, 390), "an eighth of the limit is free again"
    large.shrink(0)
    budget.note_buffers(10_000)
    assert (budget.memory_bytes, small.memory_bytes) == (10_000, 0), "nothing else can be let go"


def test_a_thousand_equal_holders_are_not_asked_for_each_that_lets_go() -> None:
    budget = MemoryBudget(100_000)
    holders = [FakeHolder(budget) for _ in range(1000)]
    for holder in holders:
        holder.hold(101)
    assert budget.cached_bytes <= 100_000
    assert sum(holder.questions for holder in holders) < 10_000


def test_the_limit_holds_where_the_largest_has_not_told_all(scene: Scene) -> None:
    """A topic that drops copies also tells of those that it had not notified of, so the total may rise."""
    scene.start(mem_queue_bytes=40 * KIB)
    large, small = scene.topic("large"), scene.topic("small")
    for topic, count in ((large, 24), (small, 11)):
        for _ in range(count):
            scene.publish(topic, b"x" * KIB)
    told_bytes = scene.memory.cached_bytes
    assert told_bytes < large.memory_bytes - 12 * KIB
    scene.memory.note_buffers(14 * KIB)
    assert scene.memory.cached_bytes == told_bytes, "it fits, as far as is known"
    small.trim_memory()
    assert large.memory_bytes + small.memory_bytes == scene.memory.cached_bytes
    assert scene.memory.memory_bytes <= 40 * KIB


def test_what_is_in_flight_keeps_no_batch(scene: Scene) -> None:
    scene.start()
    topic = scene.topic("orders", "c")
    for _ in range(100):
        scene.publish(topic, b"x" * 10 * KIB)
    consumer = scene.consumer(topic.channels["c"], 100)
    messages = consumer.take()
    assert len(messages) == 100
    for _ in range(2):
        assert [delivery.batch for _, delivery in consumer.in_flight.entries()] == [None] * 100
        topic.channels["c"].touch(consumer, messages[0].id)


def test_dead_letters_are_read_from_the_log(scene: Scene) -> None:
    scene.start(mem_queue_bytes=0, max_attempts=ByTopic(1))
    topic = scene.topic("orders", "c")
    scene.publish(topic, b"first", b"second")
    scene.publish(topic, b"third")
    consumer = scene.consumer(topic.channels["c"], 3)
    for message in consumer.take():
        consumer.requeue(message)
    scene.world.run()
    dead = scene.broker.topics["orders.dead"]
    came = scene.consumer(scene.broker.get_channel(dead, "c"), 3).bodies()
    assert sorted(came) == [b"first", b"second", b"third"]
    assert topic.channels["c"].position.finished.floor == 3


def test_of_a_large_batch_a_part_stays(scene: Scene) -> None:
    scene.start(mem_queue_size=10)
    topic = scene.topic("orders", "c")
    channel = topic.channels["c"]
    many, few = [b"x" * (1 + number % 3) for number in range(100)], [b"1", b"2", b"3", b"4"]
    scene.publish(topic, *many)
    assert channel.backend_depth(topic.first_in_memory) == 90
    scene.publish(topic, *few)
    assert channel.backend_depth(topic.first_in_memory) == 94
    assert scene.consumer(channel, 200).bodies() == many + few


# --- ephemeral topics
