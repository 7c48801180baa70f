"""Messages that were tried too often move to another topic, and are finished only when they are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gevent
import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.dead_letters import MOST_REMEMBERED, TopicPolicy, dead_letter_topic, policy_of
from nsqd_py.queue.storage import NoRoom
from nsqd_py.queue.topic import Topic
from nsqd_py.server.options import BadOptions, check_options, read_options
from nsqd_py.settings.durations import HOUR_NS
from nsqd_py.settings.kinds import ByTopic
from tests.unit.fakes import SECOND, FakeConsumer, World, refuse, start_broker


class Bench:
    """A broker whose topic `orders` gives up after two attempts."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self.options = {"max_attempts": ByTopic(2), **options}
        self.world = World()
        self.start()

    def start(self) -> None:
        self.broker: Broker = start_broker(self.world, self.directory, **self.options)
        self.use_topic("orders")

    def use_topic(self, name: str) -> None:
        self.topic = self.broker.get_topic(name)
        self.channel = self.broker.get_channel(self.topic, "ch")

    @property
    def dead(self) -> Topic:
        return self.broker.topics["orders.dead"]

    def publish(self, *bodies: bytes, delay_ns: int = 0) -> None:
        self.world.publish(self.topic, *bodies, defer_ns=delay_ns)

    def consumer(self, channel: Channel | None = None, rdy: int = 10) -> FakeConsumer:
        return self.world.consumer(channel or self.channel, rdy, 900 * SECOND)

    def dead_consumer(self) -> FakeConsumer:
        return self.consumer(self.broker.get_channel(self.dead, "ch"))

    def requeue_all(self, consumer: FakeConsumer, delay_ns: int = 0, times: int = 1) -> None:
        for _ in range(times):
            for message in consumer.take():
                consumer.requeue(message, delay_ns)
            self.world.run()

    def kill_all(self, *channels: Channel) -> None:
        """What waits in these channels is tried too often."""
        for channel in channels:
            consumer = self.consumer(channel)
            self.requeue_all(consumer, times=2)
            consumer.leave()

    def statistics(self, channel: Channel | None = None) -> tuple[int, int, int]:
        """depth, in flight, deferred"""
        channel = channel or self.channel
        return channel.depth, channel.in_flight_count, channel.deferred_count


class FullDisk:
    """Grants no space."""

    def grant(self, topic: object, size_bytes: int, /) -> int:
        raise NoRoom("the disk is full")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_dead_topic_says_where_a_limited_number_comes_from(bench: Bench) -> None:
    bench.publish(*[b"%d" % i for i in range(150)])
    bench.requeue_all(bench.consumer(rdy=200), times=2)
    assert (len(bench.dead.dead_letters), bench.channel.dead_letter_count) == (MOST_REMEMBERED, 150)


def with_a_dead_one(path: Path, *bodies: bytes) -> tuple[Bench, FakeConsumer]:
    """Messages that were requeued too often, and wait for a sync."""
    bench = Bench(path, sync_every=1)
    bench.publish(*bodies)
    gevent.idle()
    consumer = bench.consumer()
    bench.requeue_all(consumer, times=2)
    return bench, consumer


def test_it_is_finished_only_when_it_is_synced(tmp_path: Path) -> None:
    bench, consumer = with_a_dead_one(tmp_path, b"poison")
    assert (bench.statistics(), bench.channel.dead_letter_count) == ((0, 1, 0), 0)
    gevent.idle()  # the sync
    bench.world.run()
    assert (bench.statistics(), bench.channel.dead_letter_count) == ((0, 0, 0), 1)


def test_a_sync_that_fails_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, consumer = with_a_dead_one(tmp_path, b"poison")

    with monkeypatch.context() as patch:
        for name in ("os.fdatasync", "os.fsync"):
            patch.setattr(name, refuse)
        gevent.idle()
    bench.world.run()
    assert [message.attempts for message in consumer.take()] == [3]
    assert bench.channel.dead_letter_count == 0


def test_what_is_emptied_on_its_way_is_not_finished_twice(tmp_path: Path) -> None:
    bench, consumer = with_a_dead_one(tmp_path, b"poison", b"other")
    assert bench.statistics() == (0, 2, 0)
    bench.channel.empty()
    gevent.idle()
    bench.world.run()
    assert bench.statistics() == (0, 0, 0)
    assert (bench.channel.position.finished.floor, bench.channel.position.finished.islands()) == (2, [])


def test_one_that_died_in_two_channels_is_given_to_a_consumer_one_at_a_time(bench: Bench) -> None:
    """Both have one id, by which a consumer answers."""
    other = bench.broker.get_channel(bench.topic, "other")
    bench.publish(b"poison", b"second")
    bench.kill_all(bench.channel, other)
    channel = bench.broker.get_channel(bench.dead, "ch")
    reader = bench.dead_consumer()
    assert reader.bodies() == [b"poison", b"second"]
    assert bench.statistics(channel) == (0, 2, 2)
    assert channel.finish(reader, list(reader.in_flight.table)) == []
    reader.become_ready()
    bench.world.pass_time(2 * SECOND)
    last = reader.take()
    assert [message.body for message in last] == [b"poison", b"second"]
    assert reader.finish(*last) == []
    assert bench.statistics(channel) == (0, 0, 0)
    assert channel.position.finished.floor == 4
    bench.publish(b"third")
    bench.kill_all(bench.channel, other)
    assert reader.bodies() == [b"third"]
    assert bench.statistics(channel) == (0, 1, 1)


def test_a_topic_of_dead_letters_keeps_its_own(bench: Bench) -> None:
    bench.publish(b"poison")
    bench.kill_all(bench.channel)
    reader = bench.dead_consumer()
    bench.requeue_all(reader, times=5)
    assert [message.attempts for message in reader.take()] == [6]
    assert set(bench.broker.topics) == {"orders", "orders.dead"}


def test_while_it_drains_dead_letters_move_too(bench: Bench) -> None:
    bench.publish(b"poison")
    consumer = bench.consumer()
    bench.requeue_all(consumer)
    bench.broker.begin_drain(0)
    bench.requeue_all(consumer)
    assert (bench.statistics(), bench.dead.message_count) == ((0, 0, 0), 1)


# ---- a topic of dead letters that refuses messages


def test_a_refused_move_is_seen_and_logged_once_a_minute(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_topic_bytes=ByTopic(0, (("*.dead", 10),)))
    reason = "the log of topic orders.dead has the 10 bytes of --max-topic-bytes"
    bench.publish(b"poison")
    consumer = bench.consumer()
    assert bench.channel.dead_letter_error == ""

    bench.requeue_all(consumer, times=15)
    assert (bench.channel.dead_letter_error, bench.channel.dead_letter_count) == (reason, 0)
    line = (
        "CHANNEL(orders/ch): failed to move messages to topic orders.dead after 2 attempts, "
        f"consumers get them again - {reason}"
    )
    errors = bench.world.log.errors
    assert errors == [line]

    bench.world.pass_time(61 * SECOND)
    bench.requeue_all(consumer, times=2)
    assert errors == [line, line]
    assert [consumer.finish(message) for message in consumer.take()] == [[]]
    assert bench.channel.dead_letter_error == ""


def test_messages_that_move_after_a_refusal_are_no_problem(bench: Bench) -> None:
    bench.publish(b"poison")
    consumer = bench.consumer()
    bench.requeue_all(consumer)
    dead = bench.broker.get_topic("orders.dead")
    dead.quota_bytes, space, dead.space = 0, dead.space, FullDisk()
    bench.requeue_all(consumer)
    assert bench.channel.dead_letter_error == "the disk is full"
    dead.space = space
    bench.requeue_all(consumer)
    assert (bench.channel.dead_letter_error, bench.channel.dead_letter_count) == ("", 1)


# ---- settings that differ from topic to topic


def test_settings_by_topic() -> None:
    options = read_options(
        [
            "--retention-time=1h",
            "--retention-time",
            "logs.*=24h",
            "--retention-time=logs.debug=2h",
            "--max-attempts=orders=5",
            "--dead-letter-topic=orders=target",
            "--message-ttl=logs.*=48h",
            "--retention-bytes=1000",
            "--max-topic-bytes=?=7",
        ]
    )
    assert policy_of(options, "orders") == TopicPolicy(HOUR_NS, 1000, 5, "target")
    assert policy_of(options, "logs.debug") == TopicPolicy(
        24 * HOUR_NS, 1000, 0, "logs.debug.dead", 48 * HOUR_NS
    )
    assert policy_of(options, "x").max_bytes == 7


def test_the_last_value_for_all_counts() -> None:
    assert read_options(["--max-attempts=3", "--max-attempts=9"]).max_attempts == ByTopic(9)


@pytest.mark.parametrize(
    "text", ['retention_time = ["1h", "logs.*=24h"]', 'retention_time = "1h"', "retention_time = 3600000"]
)
def test_in_a_config_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nsqd.toml"
    path.write_text(text)
    assert read_options(["--config", str(path)]).retention_time_ns.of("orders") == HOUR_NS


@pytest.mark.parametrize(
    "flag", ["--retention-time=logs=5", "--retention-time==5s", "--max-attempts=logs=many"]
)
def test_not_understood(flag: str) -> None:
    with pytest.raises(SystemExit):
        read_options([flag])


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--max-attempts=logs=-1", "--max-attempts must not be negative"),
        ("--dead-letter-topic=a b", '--dead-letter-topic must be a valid topic name, got "a b"'),
        ("--dead-letter-topic=t=t", "--dead-letter-topic of topic t must be another topic, got t:"),
        ("--max-disk-bytes=-1", "--max-disk-bytes must not be negative"),
        ("--min-free-disk-bytes=-1", "--min-free-disk-bytes must not be negative"),
    ],
)
def test_refused(flag: str, says: str) -> None:
    with pytest.raises(BadOptions, match=says):
        check_options(read_options([flag]))


CIRCLES = [
    (["--max-attempts=5", "--dead-letter-topic=a=b", "--dead-letter-topic=b=a"], "from b to a to b"),
    (["--max-attempts=5", "--dead-letter-topic=a.dead=a"], "from a to a.dead to a"),
    (
        ["--max-attempts=x*=5", "--dead-letter-topic=x1=x2", "--dead-letter-topic=x*=x1"],
        "from x2 to x1 to x2",
    ),
    (["--max-attempts=a=5", "--dead-letter-topic=a=b", "--dead-letter-topic=b=a"], None),
    (
        [
            "--max-attempts=5",
            "--dead-letter-topic=a=b",
            "--dead-letter-topic=b=c",
            "--dead-letter-topic=c=c2",
        ],
        None,
    ),
]


@pytest.mark.parametrize(("flags", "circle"), CIRCLES)
def test_dead_letters_do_not_move_in_a_circle(flags: list[str], circle: str | None) -> None:
    options = read_options(flags)
    if circle is None:
        check_options(options)
        return
    with pytest.raises(BadOptions, match=f"^--dead-letter-topic: dead letters would move {circle}, without"):
        check_options(options)


@pytest.mark.parametrize("flag", ["--dead-letter-topic=orders", "--dead-letter-topic=o*=orders"])
def test_a_topic_with_a_limit_needs_another_topic_for_its_dead_letters(flag: str) -> None:
    with pytest.raises(BadOptions, match="topic orders must be another topic, got orders"):
        check_options(read_options([flag, "--max-attempts=orders=3"]))
    check_options(read_options([flag, "--max-attempts=o*=3", "--max-attempts=5"]))


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", "orders.dead"),
        ("orders.dead", "orders.dead"),
        ("orders#ephemeral", "orders.dead#ephemeral"),
        ("orders.dead#ephemeral", "orders.dead#ephemeral"),
        ("o" * 64, "o" * 59 + ".dead"),
        ("o" * 54 + "#ephemeral", "o" * 49 + ".dead#ephemeral"),
    ],
)
def test_topics_of_dead_letters(topic: str, expected: str) -> None:
    assert dead_letter_topic(topic, "") == expected
    assert len(expected) <= 64


def test_dead_letters_stay_where_they_are() -> None:
    options = read_options(["--max-attempts=5", "--dead-letter-topic=orders=grave"])
    assert policy_of(options, "orders.dead").max_attempts == 0
    assert policy_of(options, "orders").max_attempts == 5
