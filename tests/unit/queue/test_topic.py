"""Topics: publishes become batches in a log and are released to channels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.fakes import SECOND, FakeConsumer, close_descriptors
from tests.unit.topic_bench import Bench, drain


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield Bench(tmp_path)
    close_descriptors(tmp_path)


# --- one turn


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
