"""Going out of service: what still counts as left, and when it is over."""

from __future__ import annotations

from pathlib import Path

import gevent
import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.errors import Draining
from nsqd_py.queue.topic import Topic
from tests.unit.fakes import SECOND, START_NS, FakeConsumer, World, sized, start_broker


class Bench:
    """A broker on a clock that stands still."""

    def __init__(self, directory: Path) -> None:
        self.world = World()
        self.broker: Broker = start_broker(self.world, directory, drain_timeout_ns=0)
        self.drain = self.broker.drain

    def publish(self, topic_name: str, count: int, defer_ns: int = 0) -> Topic:
        topic = self.broker.get_topic(topic_name)
        body = sized(*[b"x"] * count)
        topic.publish(body, count, 5, None, 0, defer_ns)
        self.world.run()
        return topic

    def is_over(self) -> bool:
        return self.drain.is_over(self.world.clock())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_what_is_left_are_messages_queued_in_flight_and_deferred(bench: Bench) -> None:
    topic = bench.publish("orders", 3)
    consumer = FakeConsumer(bench.world, rdy=2).subscribe(bench.broker.get_channel(topic, "ch"))
    bench.publish("orders", 4, defer_ns=3600 * SECOND)
    bench.broker.begin_drain()
    bench.world.run()
    assert len(consumer.received) == 2
    assert bench.drain.messages_left == 3 + 4
    consumer.finish(*consumer.take())
    bench.world.run()
    consumer.finish(*consumer.take())
    assert bench.drain.messages_left == 4
    assert not bench.is_over()
    bench.world.pass_time(3600 * SECOND)
    consumer.finish(*consumer.take())
    bench.world.run()
    consumer.finish(*consumer.take())
    assert bench.drain.messages_left == 0
    assert bench.is_over()


def test_a_message_counts_once_for_each_channel(bench: Bench) -> None:
    topic = bench.publish("orders", 2)
    for name in ("one", "two", "three"):
        bench.broker.get_channel(topic, name)
    bench.publish("orders", 1)
    bench.broker.begin_drain()
    assert bench.drain.messages_left == 2 + 3  # the first channel got the backlog


@pytest.mark.parametrize("name", ["orders", "orders#ephemeral"])
def test_messages_of_a_topic_without_channels_are_left(bench: Bench, name: str) -> None:
    bench.publish(name, 2)
    bench.broker.begin_drain()
    assert bench.drain.messages_left == 2
    assert not bench.is_over()


def test_no_topic_takes_messages_while_it_drains(bench: Bench) -> None:
    bench.broker.get_topic("orders")
    bench.broker.begin_drain()
    for name in ("orders", "new"):
        with pytest.raises(Draining) as refusal:
            bench.broker.get_topic(name)
        assert (refusal.value.status, refusal.value.message) == (503, "DRAINING")
    assert bench.broker.find_topic("orders") is not None
    assert list(bench.broker.topics) == ["orders"]
    assert bench.broker.health() == "draining"


def test_the_time_limit_counts_from_the_request_that_gave_it(bench: Bench) -> None:
    bench.publish("orders", 1)
    bench.broker.begin_drain(10 * SECOND)
    bench.world.pass_time(10 * SECOND - 1)
    assert not bench.is_over()
    bench.world.pass_time(1)
    assert bench.is_over()
    bench.broker.begin_drain(5 * SECOND)
    assert not bench.is_over()
    bench.broker.begin_drain()  # without one it stays
    bench.world.pass_time(5 * SECOND)
    assert bench.is_over()
    bench.broker.begin_drain(0)
    assert not bench.is_over()


def test_the_time_limit_is_that_of_the_options_unless_told(bench: Bench) -> None:
    bench.publish("orders", 1)
    bench.broker.options.drain_timeout_ns = 7 * SECOND
    bench.broker.begin_drain()
    assert bench.drain.deadline_ns == START_NS + 7 * SECOND


def test_figures_are_in_seconds(bench: Bench) -> None:
    bench.publish("orders", 1)
    bench.broker.begin_drain()
    unlimited = bench.drain.statistics()
    start_s = START_NS // SECOND
    assert unlimited == {"draining": True, "drain_start_time": start_s, "drain_deadline": None, "drain_messages_left": 1}
    bench.world.pass_time(3 * SECOND)
    bench.broker.begin_drain(10 * SECOND)
    assert bench.drain.statistics() == unlimited | {"drain_deadline": start_s + 13}


class Lookups:
    """Nsqlookupds that keep a new topic waiting."""

    def __init__(self, reported: list[str]) -> None:
        self.reported = reported

    def wait_until_all_started(self, timeout_s: float) -> None:
        self.reported.append("waited")

    def close(self) -> None:
        self.reported.append("closed")

    def topic_made(self, topic: Topic) -> None:
        topic.hold()

    def notify(self, topic_name: str, channel_name: str, was_deleted: bool) -> None:
        self.reported.append(f"{topic_name} {channel_name}")


def test_it_leaves_the_nsqlookupds_and_lets_held_topics_go(bench: Bench) -> None:
    reported: list[str] = []
    bench.broker.lookups = Lookups(reported)  # type: ignore[assignment]
    topic = bench.publish("orders", 1)
    assert topic.is_held
    bench.broker.begin_drain(1)
    bench.world.pass_time(1)
    statuses: list[str] = []
    greenlet = gevent.spawn(bench.drain.wait_until_over, statuses.append, lambda: bench.broker.lookups)
    greenlet.join(timeout=40)
    assert greenlet.successful()
    assert reported == ["waited", "closed"]
    assert topic.is_started


def test_it_tells_how_much_is_left_until_it_is_over(bench: Bench) -> None:
    topic = bench.publish("orders", 2)
    channel = bench.broker.get_channel(topic, "ch")
    statuses: list[str] = []

    def tell(status: str) -> None:
        statuses.append(status)
        bench.broker.empty_channel(topic, channel)

    greenlet = gevent.spawn(bench.drain.wait_until_over, tell, lambda: None)
    gevent.idle()
    assert not greenlet.dead and statuses == []
    bench.broker.begin_drain()
    greenlet.join(timeout=40)
    assert greenlet.successful()
    assert statuses == ["draining, 2 messages to deliver"]
