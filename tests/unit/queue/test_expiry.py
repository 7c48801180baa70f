"""Messages that are older than their topic's TTL are dropped, delivered or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.queue.channel import Channel
from nsqd_py.settings.types import ByTopic
from tests.property.real import broken_reads
from tests.unit.fakes import MS, SECOND, FakeConsumer, World, sized, start_broker

TTL_NS = 60 * SECOND


class Bench:
    """A broker whose messages live for a minute."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.world = World()
        self.directory = directory
        self.options: dict[str, Any] = {"message_ttl_ns": ByTopic(TTL_NS), **options}
        self.broker: Broker = start_broker(self.world, directory, **self.options)
        self.topic = self.broker.get_topic("orders")

    def channel(self) -> Channel:
        return self.broker.get_channel(self.topic, "ch")

    def publish(self, *bodies: bytes, delay_ns: int = 0) -> None:
        self.topic.buffer.publish(sized(*bodies), len(bodies), 0, None, 0, delay_ns)
        self.world.run()

    def consumer(self, rdy: int = 100, timeout_ns: int = 900 * SECOND) -> FakeConsumer:
        consumer = FakeConsumer(self.world, rdy, timeout_ns).subscribe(self.channel())
        self.world.run()
        return consumer

    def statistics(self) -> tuple[int, int, int, int]:
        """depth, in flight, deferred, expired"""
        channel = self.channel()
        return channel.depth, channel.in_flight_count, channel.deferred_count, channel.distributor.expired_count

    def restart(self, away_ns: int) -> None:
        self.broker.close()
        now_ns = self.world.clock() + away_ns
        self.world = World()
        self.world.clock.now_ns = now_ns
        self.broker = start_broker(self.world, self.directory, **self.options)
        self.topic = self.broker.topics["orders"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_consumer_gets_nothing_that_is_too_old(bench: Bench) -> None:
    """Not even before the next sweep."""
    bench.channel()
    bench.world.pass_time(100 * MS)
    bench.publish(b"old")
    bench.world.pass_time(SECOND)
    bench.publish(b"young")
    bench.world.clock.now_ns += TTL_NS - 500 * MS  # no alarm rings
    assert bench.consumer().bodies() == [b"young"]
    assert bench.statistics() == (0, 1, 0, 1)


def test_a_requeued_message_grows_old_too(bench: Bench) -> None:
    bench.channel()
    bench.publish(b"a", b"b")
    consumer = bench.consumer()
    first, second = consumer.take()
    consumer.set_rdy(0)
    consumer.requeue(first)
    bench.world.pass_time(TTL_NS + 2 * SECOND)
    assert bench.statistics() == (0, 1, 0, 1)
    consumer.requeue(second)  # while it was in flight it stayed
    consumer.set_rdy(1)
    bench.world.run()
    assert (consumer.take(), bench.statistics()) == ([], (0, 0, 0, 2))


def test_the_age_of_a_deferred_message_counts_from_when_it_is_due(bench: Bench) -> None:
    bench.channel()
    bench.publish(b"later", delay_ns=100 * SECOND)
    bench.publish(b"now")
    bench.world.pass_time(99 * SECOND)
    assert bench.statistics() == (0, 0, 1, 1)
    bench.world.pass_time(60 * SECOND)
    assert bench.statistics() == (1, 0, 0, 1)
    consumer = bench.consumer()
    (message,) = consumer.take()
    consumer.set_rdy(0)
    consumer.requeue(message)
    bench.world.pass_time(3 * SECOND)
    assert bench.statistics() == (0, 0, 0, 2)


def test_a_run_of_several_ages_goes_when_the_last_is_too_old(bench: Bench) -> None:
    """After a restart neighbours that were requeued are one run."""
    bench.channel()
    bench.publish(b"now")
    bench.publish(b"later", delay_ns=30 * SECOND)
    bench.world.pass_time(31 * SECOND)
    consumer = bench.consumer()
    for message in consumer.take():
        consumer.requeue(message)
    bench.restart(0)
    assert len(bench.channel().position.again) == 1
    bench.world.pass_time(35 * SECOND)
    assert bench.statistics() == (2, 0, 0, 0)
    bench.world.pass_time(26 * SECOND)
    assert bench.statistics() == (0, 0, 0, 2)


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_topic_drops_what_no_channel_has(bench: Bench, is_paused: bool) -> None:
    if is_paused:
        bench.channel()
        bench.broker.pause_topic(bench.topic, True)
    bench.publish(b"old", b"old too")
    bench.publish(b"later", delay_ns=30 * SECOND)
    bench.publish(b"behind")
    bench.world.pass_time(TTL_NS + 2 * SECOND)
    assert (bench.topic.depth, bench.topic.expired_count) == (2, 2)  # up to the first that is young
    bench.world.pass_time(30 * SECOND)
    assert (bench.topic.depth, bench.topic.expired_count) == (0, 4)
    bench.publish(b"new")
    bench.broker.pause_topic(bench.topic, False)
    assert bench.consumer().bodies() == [b"new"]


def test_a_start_after_a_long_time_drops_what_grew_old_meanwhile(bench: Bench) -> None:
    bench.channel()
    bench.publish(b"old")
    bench.restart(2 * TTL_NS)
    bench.world.pass_time(0)
    assert bench.statistics() == (0, 0, 0, 1)


def test_files_of_what_is_too_old_go(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_bytes_per_file=1000)
    bench.channel()
    for _ in range(10):
        bench.publish(b"x" * 800)
    assert len(list(tmp_path.glob("orders.*.log"))) == 10
    bench.world.pass_time(TTL_NS + 2 * SECOND)
    assert len(list(tmp_path.glob("orders.*.log"))) == 1


def test_setting_the_clock_makes_no_message_old(bench: Bench) -> None:
    bench.channel()
    wall_ns = bench.world.clock
    offset_ns = [0]
    bench.broker.services.wall_clock = lambda: wall_ns() + offset_ns[0]
    bench.publish(b"before")
    offset_ns[0] = 3600 * SECOND
    bench.world.pass_time(10 * SECOND)
    bench.publish(b"in the future")
    offset_ns[0] = -3600 * SECOND
    bench.world.pass_time(10 * SECOND)
    bench.publish(b"in the past")
    bench.world.pass_time(2 * SECOND)
    assert bench.statistics() == (3, 0, 0, 0)


def test_a_dead_letter_lives_anew(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_attempts=ByTopic(1))
    bench.channel()
    bench.publish(b"poison")
    consumer = bench.consumer()
    bench.world.pass_time(50 * SECOND)
    consumer.requeue(*consumer.take())
    bench.world.run()
    bench.topic = bench.broker.topics["orders.dead"]
    bench.channel()
    bench.world.pass_time(50 * SECOND)
    assert bench.statistics() == (1, 0, 0, 0)
    bench.world.pass_time(12 * SECOND)
    assert bench.statistics() == (0, 0, 0, 1)


def test_a_disk_that_fails_is_asked_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, mem_queue_size=0)
    bench.channel()
    bench.publish(b"old")
    bench.world.pass_time(30 * SECOND)
    bench.publish(b"young")
    with broken_reads():
        bench.world.pass_time(32 * SECOND)
    assert bench.statistics() == (2, 0, 0, 0)
    bench.world.pass_time(SECOND)
    assert bench.statistics() == (1, 0, 0, 1)
