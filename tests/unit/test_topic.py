"""Topics: publishes become batches in a log and are released to channels."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.batch import uniform_stride
from nsqd_py.broker import Broker
from nsqd_py.channel import Channel
from nsqd_py.delivery import Position
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.guid import IDS_PER_TICK, GuidFactory
from nsqd_py.topic import Topic
from tests.unit.fakes import (
    SECOND,
    FakeConsumer,
    FakePublisher,
    World,
    close_descriptors,
    limits,
    messages_of,
    sized,
    start_broker,
)


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
            name, log, GuidFactory(1), mem_queue_size, world.turn, world.clock,
            None if is_ephemeral else self.syncer, world.log,
        )  # fmt: skip

    def channel(self, topic: Topic, name: str = "ch", mem_queue_size: int = 10_000) -> Channel:
        """As a broker makes it, but for the journal."""
        world = self.world
        channel = Channel(
            name, Position(topic.released, topic.released), topic, limits(mem_queue_size=mem_queue_size), world.turn,
            world.alarms, world.clock, None, lambda _: None, keeps_batches=topic.log is None,
        )  # fmt: skip
        topic.channels[name] = channel
        topic.release()
        return channel

    def publish(self, topic: Topic, *messages: bytes, due_ns: int = 0) -> FakePublisher:
        publisher = FakePublisher()
        body = sized(*messages)
        topic.publish(body, len(messages), uniform_stride(body, len(messages)), publisher, 7, due_ns)
        return publisher


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield Bench(tmp_path)
    close_descriptors(tmp_path)


def logged(topic: Topic) -> list[tuple[int, bytes]]:
    """What a reader of the log finds."""
    assert topic.log is not None
    messages = []
    seq = topic.log.first_seq
    while chunk := topic.log.read(seq):
        messages += messages_of(chunk)
        seq = chunk[-1].end_seq
    return messages


def drain(topic: Topic, low: int = 0) -> list[bytes]:
    """What `batch_at` gives for every number from `low` on."""
    bodies = []
    for seq in range(low, topic.next_seq):
        batch = topic.batch_at(seq)
        assert batch is not None
        assert batch.first_seq <= seq < batch.end_seq
        bodies.append(batch.message(seq - batch.first_seq))
    return bodies


# --- one turn


def test_nothing_is_there_before_the_turn_ends(bench: Bench) -> None:
    topic = bench.topic()
    bench.publish(topic, b"one")
    assert (topic.next_seq, topic.message_count) == (0, 0)
    bench.world.run()
    assert (topic.next_seq, topic.message_count, topic.message_bytes) == (1, 1, 3)


def test_publishes_of_a_turn_are_one_batch(bench: Bench) -> None:
    topic = bench.topic()
    bench.publish(topic, b"one")
    bench.publish(topic, b"two", b"six")
    bench.publish(topic, b"four")
    bench.world.run()
    assert topic.log is not None
    (batch,) = topic.log.read(0)
    assert messages_of([batch]) == [(0, b"one"), (1, b"two"), (2, b"six"), (3, b"four")]
    assert batch.stride == 0
    bench.publish(topic, b"one")
    bench.publish(topic, b"two", b"six")
    bench.world.run()
    assert topic.log.read(4)[0].stride == 7
    assert (topic.message_count, topic.message_bytes) == (7, 22)


def test_gathering_stops_at_a_megabyte(bench: Bench) -> None:
    topic = bench.topic(max_bytes_per_file=1 << 30)
    for _ in range(5):
        bench.publish(topic, b"x" * 400_000)
    bench.world.run()
    assert drain(topic) == [b"x" * 400_000] * 5
    assert [batch.count for batch in topic._memory] == [2, 2, 1]


def test_deferred_messages_are_a_batch_of_their_own(bench: Bench) -> None:
    topic = bench.topic()
    bench.publish(topic, b"before")
    bench.publish(topic, b"later", due_ns=99)
    bench.publish(topic, b"behind")
    bench.world.run()
    assert topic.log is not None
    assert [(batch.first_seq, batch.due_ns) for batch in topic.log.read(0)] == [(0, 0), (1, 99), (2, 0)]
    assert topic.unreleased_deferred == [(1, 2, 99)]


@pytest.mark.parametrize("count", [IDS_PER_TICK, IDS_PER_TICK + 1, 3 * IDS_PER_TICK + 5])
@pytest.mark.parametrize("alike", [True, False])
def test_an_mpub_of_more_than_one_range_of_ids(bench: Bench, count: int, alike: bool) -> None:
    topic = bench.topic(mem_queue_size=100_000)
    messages = [b"%06d" % i if alike else b"%d" % i for i in range(count)]
    bench.publish(topic, *messages)
    bench.world.run()
    batches = topic._memory
    assert [body for _, body in messages_of(batches)] == messages
    assert logged(topic) == list(enumerate(messages))
    ids = [batch.base_id + i for batch in batches for i in range(batch.count)]
    assert len(set(ids)) == count
    assert ids == sorted(ids)
    for batch in batches:
        assert batch.base_id >> 12 == (batch.base_id + batch.count - 1) >> 12  # no range runs into the node's bits
        assert (batch.stride != 0) == alike or batch.count < 10


def test_gathered_publishes_of_more_than_one_range_of_ids(bench: Bench) -> None:
    topic = bench.topic()
    messages = [b"%d" % i for i in range(IDS_PER_TICK + 100)]
    for message in messages:
        bench.publish(topic, message)
    bench.world.run()
    assert drain(topic) == messages
    ids = [batch.base_id + i for batch in topic._memory for i in range(batch.count)]
    assert len(set(ids)) == len(messages)


def test_those_who_wait_for_the_disk_are_handed_on(bench: Bench) -> None:
    topic = bench.topic()
    first, second = bench.publish(topic, b"one"), bench.publish(topic, b"two")
    bench.world.run()
    assert bench.syncer.calls == [(2, [(first, 7), (second, 7)])]


# --- releasing


def test_a_topic_without_channels_holds_its_messages(bench: Bench) -> None:
    topic = bench.topic()
    bench.publish(topic, b"one", b"two")
    bench.world.run()
    assert topic.is_held
    assert (topic.depth, topic.released) == (2, 0)


def test_the_first_channel_gets_the_backlog_and_the_second_does_not(bench: Bench) -> None:
    topic = bench.topic()
    bench.publish(topic, b"one", b"two")
    bench.world.run()
    first = bench.channel(topic, "first")
    second = bench.channel(topic, "second")
    assert (topic.depth, first.depth, second.depth) == (0, 2, 0)
    bench.publish(topic, b"three")
    bench.world.run()
    assert (first.depth, second.depth) == (3, 1)
    assert (first.message_count, second.message_count) == (3, 1)


def test_a_paused_topic_holds_what_comes(bench: Bench) -> None:
    topic = bench.topic()
    channel = bench.channel(topic)
    bench.publish(topic, b"before the pause")
    topic.pause()
    bench.publish(topic, b"one", b"two")
    bench.world.run()
    assert (topic.depth, channel.depth) == (2, 1)
    topic.unpause()
    assert (topic.depth, channel.depth) == (0, 3)


def test_a_topic_that_was_not_started_holds_what_comes(bench: Bench) -> None:
    topic = bench.topic()
    topic.is_started = False
    channel = bench.channel(topic)
    bench.publish(topic, b"one")
    bench.world.run()
    assert (topic.depth, channel.depth) == (1, 0)
    topic.start()
    assert (topic.depth, channel.depth) == (0, 1)


def test_deferred_messages_of_a_held_topic(bench: Bench) -> None:
    topic = bench.topic()
    due_ns = bench.world.clock() + 10 * SECOND
    bench.publish(topic, b"now")
    bench.publish(topic, b"later", b"later too", due_ns=due_ns)
    bench.world.run()
    channel = bench.channel(topic)
    assert (channel.depth, channel.deferred_count) == (1, 2)
    bench.world.pass_time(10 * SECOND)
    assert (channel.depth, channel.deferred_count) == (3, 0)


def test_empty_drops_what_no_channel_has(bench: Bench) -> None:
    topic = bench.topic()
    bench.publish(topic, b"one", b"two")
    bench.publish(topic, b"later", due_ns=bench.world.clock() + SECOND)
    topic.empty()
    assert topic.depth == 0
    channel = bench.channel(topic)
    assert (channel.depth, channel.deferred_count) == (0, 0)
    assert not topic.is_needed(0, topic.next_seq)


def test_emptying_a_paused_topic_leaves_its_channels_what_they_have(bench: Bench) -> None:
    """And nothing of what was dropped comes back when it goes on."""
    topic = bench.topic()
    channel = bench.channel(topic)
    bench.publish(topic, b"kept")
    topic.pause()
    bench.publish(topic, b"dropped", b"dropped too")
    bench.publish(topic, b"dropped as well", due_ns=bench.world.clock() + SECOND)
    topic.empty()
    assert (topic.depth, channel.depth) == (0, 1)
    bench.publish(topic, b"new")
    bench.world.run()
    topic.unpause()
    assert (channel.depth, channel.deferred_count) == (2, 0)
    consumer = FakeConsumer(bench.world, rdy=10).subscribe(channel)
    bench.world.run()
    assert consumer.bodies() == [b"kept", b"new"]
    consumer.finish(*consumer.received)


def test_emptying_a_paused_topic_lets_go_of_its_files(bench: Bench) -> None:
    topic = bench.topic()
    bench.channel(topic)
    topic.pause()
    bench.publish(topic, b"dropped", b"dropped too")
    topic.empty()
    assert not topic.is_needed(0, 2)


def test_is_needed(bench: Bench) -> None:
    topic = bench.topic()
    bench.publish(topic, b"one", b"two", b"six")
    bench.world.run()
    assert topic.is_needed(0, 3)  # by the topic itself
    channel = bench.channel(topic)
    consumer = FakeConsumer(bench.world, rdy=10).subscribe(channel)
    bench.world.run()
    one, two, six = consumer.take()
    consumer.finish(one, six)
    assert not topic.is_needed(0, 1)
    assert topic.is_needed(0, 3)
    consumer.finish(two)
    assert not topic.is_needed(0, 3)


# --- memory


@pytest.mark.parametrize("mem_queue_size", [0, 1, 5, 10_000])
def test_messages_are_found_in_memory_or_in_the_log(bench: Bench, mem_queue_size: int) -> None:
    topic = bench.topic(mem_queue_size=mem_queue_size, max_bytes_per_file=2_000)
    channel = bench.channel(topic)
    messages = [b"%03d" % i for i in range(300)]
    for i in range(0, 300, 3):
        bench.publish(topic, *messages[i : i + 3])
        bench.world.run()
    assert topic._memory_count <= mem_queue_size + 3
    assert drain(topic) == messages
    assert channel.backend_depth(topic.first_in_memory) == 300 - topic._memory_count
    consumer = FakeConsumer(bench.world, rdy=1_000).subscribe(channel)
    bench.world.run()
    assert consumer.bodies() == messages


def test_what_all_channels_have_passed_is_forgotten(bench: Bench) -> None:
    topic = bench.topic()
    first, second = bench.channel(topic, "first"), bench.channel(topic, "second")
    for _ in range(10):
        bench.publish(topic, b"x")
        bench.world.run()
    consumers = [FakeConsumer(bench.world, rdy=7).subscribe(first), FakeConsumer(bench.world, rdy=4).subscribe(second)]
    bench.world.run()
    topic.trim_memory()
    assert topic.first_in_memory == 4
    assert drain(topic) == [b"x"] * 10
    consumers[1].set_rdy(100)
    bench.world.run()
    topic.trim_memory()
    assert topic.first_in_memory == 7


def test_memory_does_not_grow_with_messages_that_are_consumed(bench: Bench) -> None:
    topic = bench.topic()
    consumer = FakeConsumer(bench.world, rdy=1).subscribe(bench.channel(topic))
    most = 0
    for _ in range(1_000):
        bench.publish(topic, b"x")
        bench.world.run()
        consumer.finish(*consumer.take())
        most = max(most, len(topic._memory))
    assert most < 200


def test_backend_depth_of_a_held_topic(bench: Bench) -> None:
    topic = bench.topic(mem_queue_size=2)
    for _ in range(5):
        bench.publish(topic, b"x")
        bench.world.run()
    assert (topic.depth, topic.backend_depth) == (5, 3)


# --- ephemeral topics


def test_an_ephemeral_topic_writes_nothing(bench: Bench) -> None:
    topic = bench.topic("orders#ephemeral")
    channel = bench.channel(topic)
    bench.publish(topic, b"one", b"two")
    bench.publish(topic, b"later", due_ns=bench.world.clock() + SECOND)
    bench.world.run()
    assert list(bench.directory.iterdir()) == []
    consumer = FakeConsumer(bench.world, rdy=10).subscribe(channel)
    bench.world.run()
    assert consumer.bodies() == [b"one", b"two"]
    topic.trim_memory()
    bench.world.pass_time(SECOND)
    assert consumer.bodies() == [b"later"]


@pytest.mark.parametrize("batches", [[3, 3, 3], [9], [1] * 9, [6, 1, 1, 1], [5, 4]])
def test_an_ephemeral_topic_holds_no_more_than_memory_may(bench: Bench, batches: list[int]) -> None:
    topic = bench.topic("orders#ephemeral", mem_queue_size=5)
    for count in batches:
        bench.publish(topic, *[b"x"] * count)
        bench.world.run()
    assert (topic.depth, topic.next_seq) == (5, 5)
    assert drain(topic) == [b"x"] * 5
    assert (topic.message_count, topic.message_bytes) == (9, 9)


def test_an_ephemeral_topic_overflows_within_a_turn_too(bench: Bench) -> None:
    """Deferred messages are batches of their own, also when they come in one turn."""
    topic = bench.topic("orders#ephemeral", mem_queue_size=2)
    for i in range(5):
        bench.publish(topic, b"%d" % i, due_ns=bench.world.clock() + SECOND)
    bench.world.run()
    assert topic.depth == 2
    assert drain(topic) == [b"0", b"1"]
    assert topic.message_count == 5


def test_an_ephemeral_topic_goes_on_after_an_overflow(bench: Bench) -> None:
    topic = bench.topic("orders#ephemeral", mem_queue_size=2)
    bench.publish(topic, b"a", b"b", b"c")
    bench.world.run()
    consumer = FakeConsumer(bench.world, rdy=10).subscribe(bench.channel(topic))
    bench.world.run()
    bench.publish(topic, b"d", b"e", b"f")
    bench.world.run()
    assert consumer.bodies() == [b"a", b"b", b"d", b"e", b"f"]


# --- a disk that fails


def refuse(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_publish_that_cannot_be_written_is_as_if_it_never_was(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = bench.topic()
    channel = bench.channel(topic)
    health: list[OSError | None] = []
    topic.on_write = health.append
    bench.publish(topic, b"before")
    bench.world.run()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        publishers = [bench.publish(topic, b"lost"), bench.publish(topic, b"lost", due_ns=1 << 62)]
        bench.world.run()
    for publisher in publishers:
        ((ticket, error),) = publisher.failures
        assert (ticket, error.errno) == (7, errno.ENOSPC)
    assert (topic.next_seq, topic.message_count, channel.depth, channel.deferred_count) == (1, 1, 1, 0)
    assert bench.world.log.errors
    assert isinstance(health[-1], OSError)

    after = bench.publish(topic, b"after")
    bench.world.run()
    assert after.failures == []
    assert health[-1] is None
    assert drain(topic) == [b"before", b"after"]
    assert logged(topic) == [(0, b"before"), (1, b"after")]
    assert channel.depth == 2


def test_a_bug_while_writing_is_not_answered_with_ok(bench: Bench) -> None:
    """A time that fits no record: the publisher must hear of it, and those who come later must not suffer."""
    topic = bench.topic()
    publisher = bench.publish(topic, b"lost", due_ns=1 << 63)
    with pytest.raises(Exception):  # noqa: B017 - whichever it is
        bench.world.run()
    bench.publish(topic, b"after")
    bench.world.run()
    assert drain(topic) == [b"after"]
    assert publisher.failures


def test_commit_comes_before_a_pause(bench: Bench) -> None:
    topic = bench.topic()
    channel = bench.channel(topic)
    bench.publish(topic, b"one")
    topic.pause()
    assert channel.depth == 1
    bench.world.run()
    assert topic.next_seq == 1


def test_close_writes_what_was_published_and_takes_leave(bench: Bench) -> None:
    topic = bench.topic()
    consumer = FakeConsumer(bench.world).subscribe(bench.channel(topic))
    bench.publish(topic, b"one")
    topic.close()
    assert logged(topic) == [(0, b"one")]
    assert consumer.close_reason is not None


# --- as a broker has it


@pytest.fixture
def broker(bench: Bench) -> Broker:
    return start_broker(bench.world, bench.directory)


def test_an_emptied_paused_topic_is_empty_after_a_restart(bench: Bench, broker: Broker) -> None:
    topic = broker.get_topic("orders")
    broker.get_channel(topic, "ch")
    broker.pause_topic(topic, True)
    bench.publish(topic, b"dropped")
    bench.world.run()
    broker.empty_topic(topic)
    close_descriptors(bench.directory)
    again = start_broker(World(), bench.directory).topics["orders"]
    assert (again.is_paused, again.depth, again.channels["ch"].depth) == (True, 0, 0)


def test_an_ephemeral_topic_is_deleted_with_its_ephemeral_channels_consumers(broker: Broker, bench: Bench) -> None:
    """Closing a consumer deletes its channel, that the topic, which is being deleted already."""
    topic = broker.get_topic("orders#ephemeral")
    for name in ("a#ephemeral", "b#ephemeral"):
        channel = broker.get_channel(topic, name)
        consumer = FakeConsumer(bench.world).subscribe(channel)
        consumer.close = lambda reason, c=consumer, ch=channel: broker.client_left(topic, ch, c)  # type: ignore
    broker.delete_topic("orders#ephemeral")
    assert broker.topics == {}
    assert topic.channels == {}


def test_closing_with_consumers_of_ephemeral_topics_saves_the_others(broker: Broker, bench: Bench) -> None:
    topics = [broker.get_topic(name) for name in ("a#ephemeral", "lasting", "b#ephemeral")]
    for topic in topics:
        channel = broker.get_channel(topic, "ch#ephemeral")
        consumer = FakeConsumer(bench.world).subscribe(channel)
        consumer.close = lambda reason, c=consumer, ch=channel, t=topic: broker.client_left(t, ch, c)  # type: ignore
    broker.close()
    assert topics[1].is_closed


def test_one_channel_that_cannot_be_saved_does_not_keep_the_others_from_it(
    broker: Broker, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.get_topic("orders")
    first, second = broker.get_channel(topic, "first"), broker.get_channel(topic, "second")
    bench.publish(topic, b"one")
    bench.world.run()
    for channel in (first, second):
        consumer = FakeConsumer(bench.world, rdy=1).subscribe(channel)
        bench.world.run()
        consumer.finish(*consumer.take())
    monkeypatch.setattr(first, "save_at_the_end", refuse)
    broker.close()
    assert bench.world.log.errors
    close_descriptors(bench.directory)
    assert start_broker(World(), bench.directory).topics["orders"].channels["second"].depth == 0


def test_a_channel_whose_journal_cannot_be_written_does_not_exist(
    broker: Broker, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.get_topic("orders")
    bench.publish(topic, b"one")
    bench.world.run()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            broker.get_channel(topic, "ch")
    assert topic.depth == 1
    assert broker.get_channel(topic, "ch").depth == 1
    assert (bench.directory / "orders:ch.cursor").exists()
