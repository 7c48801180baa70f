"""Topics: publishes become batches in a log and are released to channels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqd_py.batch import uniform_stride
from nsqd_py.guid import IDS_PER_TICK
from tests.unit.fakes import SECOND, FakeConsumer, close_descriptors, messages_of
from tests.unit.topic_bench import Bench, drain, logged


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield Bench(tmp_path)
    close_descriptors(tmp_path)


# --- one turn


def test_a_batch_ends_where_it_would_be_large(bench: Bench) -> None:
    topic = bench.topic(max_bytes_per_file=1 << 30)
    for _ in range(5):
        bench.publish(topic, b"x" * 60_000)
    bench.world.run()
    assert drain(topic) == [b"x" * 60_000] * 5
    assert [batch.count for batch in topic._recent.batches] == [2, 2, 1]


@pytest.mark.parametrize("alike", [True, False])
def test_an_mpub_of_a_range_of_ids(bench: Bench, alike: bool) -> None:
    count = IDS_PER_TICK
    topic = bench.topic(mem_queue_size=100_000)
    messages = [b"%06d" % i if alike else b"%d" % i for i in range(count)]
    bench.publish(topic, *messages)
    bench.world.run()
    batches = topic._recent.batches
    assert [body for _, body in messages_of(batches)] == messages
    assert logged(topic) == list(enumerate(messages))
    ids = [batch.base_id + i for batch in batches for i in range(batch.count)]
    assert len(set(ids)) == count
    assert ids == sorted(ids)
    for batch in batches:
        assert batch.base_id >> 12 == (batch.base_id + batch.count - 1) >> 12  # no range runs into the node's bits
        assert batch.stride == uniform_stride(batch.body, batch.count)


def test_gathered_publishes_of_more_than_one_range_of_ids(bench: Bench) -> None:
    topic = bench.topic()
    messages = [b"%d" % i for i in range(IDS_PER_TICK + 100)]
    for message in messages:
        bench.publish(topic, message)
    bench.world.run()
    assert drain(topic) == messages
    ids = [batch.base_id + i for batch in topic._recent.batches for i in range(batch.count)]
    assert len(set(ids)) == len(messages)


def test_those_who_wait_for_the_disk_are_handed_on(bench: Bench) -> None:
    topic = bench.topic()
    first, second = bench.publish(topic, b"one"), bench.publish(topic, b"two")
    bench.world.run()
    assert bench.syncer.calls == [(2, [(first, 7), (second, 7)])]


# --- lone messages


@pytest.mark.parametrize("every", [2, 3, 5])
def test_lone_messages_are_synced_as_often_as_others(bench: Bench, every: int) -> None:
    """The syncer hears of the first, which sets its time, and of the one that makes it `every`."""
    bench.syncer.every = every
    topic = bench.topic()
    for _ in range(every):
        bench.publish(topic, b"x")
        bench.world.run()
    assert [unsynced for unsynced, _ in bench.syncer.calls] == [1, every]


# --- releasing


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
    bench.publish(topic, b"now")
    bench.publish(topic, b"later", b"later too", defer_ns=10 * SECOND)
    bench.world.run()
    channel = bench.channel(topic)
    assert (channel.depth, channel.deferred_count) == (1, 2)
    bench.world.pass_time(10 * SECOND)
    assert (channel.depth, channel.deferred_count) == (3, 0)


def test_emptying_a_paused_topic_leaves_its_channels_what_they_have(bench: Bench) -> None:
    """And nothing of what was dropped comes back when it goes on."""
    topic = bench.topic()
    channel = bench.channel(topic)
    bench.publish(topic, b"kept")
    topic.pause()
    bench.publish(topic, b"dropped", b"dropped too")
    bench.publish(topic, b"dropped as well", defer_ns=SECOND)
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
    ephemeral = bench.channel(topic, "c#ephemeral")
    messages = [b"%03d" % i for i in range(300)]
    for i in range(0, 300, 3):
        bench.publish(topic, *messages[i : i + 3])
        bench.world.run()
    assert topic._recent.count <= mem_queue_size + 3
    assert drain(topic) == messages
    assert channel.backend_depth(topic.first_in_memory) == 300 - topic._recent.count
    assert ephemeral.backend_depth(topic.first_in_memory) == 0
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
        most = max(most, len(topic._recent.batches))
    assert most < 200
