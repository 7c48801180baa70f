"""Topics: publishes become batches in a log and are released to channels."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.lifetime.shutdown import close as close_broker
from tests.unit.fakes import SECOND, FakeConsumer, publish, refuse, start_broker
from tests.unit.topic_bench import Bench, drain


@pytest.fixture
def bench(directory: Path) -> Bench:
    return Bench(directory)


# --- lone messages


@pytest.mark.parametrize("every", [2, 3, 5])
def test_lone_messages_are_synced_as_often_as_others(bench: Bench, every: int) -> None:
    """The syncer hears of the first, which sets its time, and of the one that makes it `every`."""
    bench.syncer.every = every
    topic = bench.topic()
    for _ in range(every):
        bench.world.publish(topic, b"x")
    assert [unsynced for unsynced, _ in bench.syncer.calls] == [1, every]


def test_emptying_a_paused_topic_lets_go_of_its_files(bench: Bench) -> None:
    topic = bench.topic()
    bench.channel(topic)
    topic.pause()
    publish(topic, b"dropped", b"dropped too")
    topic.empty()
    assert not topic.is_needed(0, 2)


def test_what_a_paused_topic_held_does_not_stall_its_channels_at_once(bench: Bench) -> None:
    """The messages are old, and nothing was finished since before the pause."""
    topic = bench.topic()
    channel = bench.channel(topic)
    FakeConsumer(bench.world).subscribe(channel)
    topic.pause()
    bench.world.publish(topic, b"1", b"2")
    bench.world.pass_time(100 * SECOND)
    topic.unpause()
    bench.world.run()
    assert (channel.depth, channel.in_flight_count, channel.stalled_ns) == (1, 1, 0)
    bench.world.pass_time(11 * SECOND)
    assert channel.stalled_ns == bench.world.clock() - 11 * SECOND


# --- ephemeral topics


def test_an_ephemeral_topic_overflows_within_a_turn_too(bench: Bench) -> None:
    """Deferred messages are batches of their own, also when they come in one iteration."""
    topic = bench.topic("orders#ephemeral", mem_queue_size=2)
    for i in range(5):
        publish(topic, b"%d" % i, defer_ns=SECOND + i)
    bench.world.run()
    assert topic.depth == 2
    assert drain(topic) == [b"0", b"1"]
    assert (topic.message_count, topic.dropped_count) == (5, 3)


# --- a disk that fails


def test_a_bug_while_writing_is_not_answered_with_ok(bench: Bench) -> None:
    """A time that fits no record: the publisher must hear of it, and those who come later must not suffer."""
    topic = bench.topic()
    publisher = publish(topic, b"lost", defer_ns=1 << 63)
    with pytest.raises(Exception):  # noqa: B017 - whichever it is
        bench.world.run()
    bench.world.publish(topic, b"after")
    assert drain(topic) == [b"after"]
    assert publisher.failures


# --- as a broker has it


@pytest.fixture
def broker(bench: Bench) -> Broker:
    return start_broker(bench.world, bench.directory)


def test_closing_with_consumers_of_ephemeral_topics_saves_the_others(broker: Broker, bench: Bench) -> None:
    topics = [broker.get_topic(name) for name in ("a#ephemeral", "lasting", "b#ephemeral")]
    for topic in topics:
        channel = broker.get_channel(topic, "ch#ephemeral")
        consumer = FakeConsumer(bench.world).subscribe(channel)
        consumer.close = lambda reason, c=consumer, ch=channel, t=topic: broker.client_left(t, ch, c)  # type: ignore
    close_broker(broker)
    assert topics[1].is_closed


def test_a_channel_whose_journal_cannot_be_written_does_not_exist(
    broker: Broker, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.get_topic("orders")
    bench.world.publish(topic, b"one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            broker.get_channel(topic, "ch")
    assert topic.depth == 1
    assert broker.get_channel(topic, "ch").depth == 1
    assert (bench.directory / "orders:ch.cursor").exists()
