"""Channels: what consumers say, and what becomes of what they do not say."""

from __future__ import annotations

import pytest

from nsqd_py.queue.message_reader import MOST_ATTEMPTS
from tests.unit.channel_bench import Bench, numbered
from tests.unit.fakes import SECOND, FakeConsumer


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- finish


def test_finish(bench: Bench) -> None:
    consumer = bench.consumer(rdy=2)
    bench.release(*numbered(3))
    bench.run()
    first, second = consumer.take()
    assert consumer.finish(first) == []
    bench.run()
    (third,) = consumer.take()
    assert third.body == b"002"
    assert consumer.finish(third, second) == []
    assert bench.figures() == (0, 0, 0)
    assert bench.channel.position.finished.floor == 3


def test_ids_that_are_made_up_are_searched_for_now_and_then(bench: Bench) -> None:
    """Among many clients, that is: each search takes long there, and decides only how an error is worded."""
    mine, other, *_ = [bench.consumer() for _ in range(100)]
    bench.release(*numbered(200))
    bench.run()
    message, *_ = other.take()
    bench.world.clock.now_ns += 1_000_000_000
    assert bench.channel.owns(message.id)
    assert not bench.channel.owns(message.id)
    bench.world.clock.now_ns += 10_000_000
    assert bench.channel.owns(message.id)
    assert mine.finish(message) == [message.id]


def test_finish_of_others_messages(bench: Bench) -> None:
    mine, other = bench.consumer(), bench.consumer()
    bench.release(*numbered(2))
    bench.run()
    (message,) = other.take()
    assert mine.finish(message) == [message.id]
    assert bench.channel.owns(message.id)
    assert not bench.channel.owns(b"f" * 16)
    assert bench.figures() == (0, 2, 0)
    assert other.finish(message) == []


# --- requeue


def test_requeue_at_once(bench: Bench) -> None:
    consumer = bench.consumer()
    bench.release(b"x")
    bench.run()
    for attempts in (1, 2, 3):
        (message,) = consumer.take()
        assert message.attempts == attempts
        assert consumer.requeue(message)
        assert bench.figures() == (1, 0, 0)
        bench.run()
    assert bench.channel.requeue_count == 3
    assert consumer.received[0].id == message.id


def test_requeue_with_delay(bench: Bench) -> None:
    consumer = bench.consumer()
    bench.release(b"x")
    bench.run()
    (message,) = consumer.take()
    assert consumer.requeue(message, 5 * SECOND)
    assert bench.figures() == (0, 0, 1)
    bench.pass_time(5 * SECOND - 1)
    assert bench.figures() == (0, 0, 1)
    bench.pass_time(1)
    (again,) = consumer.take()
    assert (again.id, again.attempts) == (message.id, 2)
    assert bench.figures() == (0, 1, 0)


def test_requeue_of_what_is_not_in_flight(bench: Bench) -> None:
    consumer, other = bench.consumer(), bench.consumer()
    bench.release(b"x", b"y")
    bench.run()
    (message,) = other.take()
    assert not consumer.requeue(message)
    other.finish(message)
    assert not other.requeue(message)
    assert bench.channel.requeue_count == 0


def test_requeued_messages_come_behind_what_waits(bench: Bench) -> None:
    consumer = bench.consumer(rdy=2)
    bench.release(*numbered(4))
    bench.run()
    first, second = consumer.take()
    consumer.requeue(first)
    consumer.requeue(second)
    bench.run()
    received = consumer.take()
    assert [message.body for message in received] == [b"002", b"003"]
    consumer.finish(*received)
    bench.run()
    assert consumer.bodies() == [b"000", b"001"]


def test_attempts_stay_within_their_field(bench: Bench) -> None:
    bench.release(b"x")
    position = bench.channel.position
    position.take_fresh(1)
    position.queue_again((0, 1, MOST_ATTEMPTS, None))
    consumer = bench.consumer()
    bench.run()
    assert [message.attempts for message in consumer.take()] == [MOST_ATTEMPTS]


# --- time-outs


def test_time_out(bench: Bench) -> None:
    consumer = bench.consumer(rdy=2, msg_timeout_ns=10 * SECOND)
    bench.release(b"x", b"y", b"z")
    bench.run()
    first, second = consumer.take()
    consumer.finish(first)
    bench.run()
    bench.pass_time(10 * SECOND - 1)
    assert consumer.bodies() == [b"z"]
    bench.pass_time(1)
    assert [(message.body, message.attempts) for message in consumer.take()] == [(b"y", 2), (b"z", 2)]
    assert bench.channel.timeout_count == 2
    assert bench.figures() == (0, 2, 0)


def test_touch_gives_more_time(bench: Bench) -> None:
    consumer = bench.consumer(msg_timeout_ns=10 * SECOND)
    bench.release(b"x")
    bench.run()
    (message,) = consumer.take()
    bench.pass_time(6 * SECOND)
    assert bench.channel.touch(consumer, message.id)
    bench.pass_time(10 * SECOND - 1)
    assert bench.figures() == (0, 1, 0)
    bench.pass_time(1)
    assert [again.attempts for again in consumer.take()] == [2]


def test_touch_gives_no_more_than_the_most(bench: Bench) -> None:
    bench.limits.max_msg_timeout_ns = 15 * SECOND
    consumer = bench.consumer(msg_timeout_ns=10 * SECOND)
    bench.release(b"x")
    bench.run()
    (message,) = consumer.take()
    for _ in range(7):
        bench.pass_time(2 * SECOND)
        assert bench.channel.touch(consumer, message.id)
    bench.pass_time(SECOND)
    assert bench.channel.timeout_count == 1


def test_touch_of_what_is_not_in_flight(bench: Bench) -> None:
    consumer = bench.consumer()
    assert not bench.channel.touch(consumer, b"0" * 16)


def test_what_a_gone_consumer_had_times_out(bench: Bench) -> None:
    consumer = bench.consumer(rdy=2, msg_timeout_ns=10 * SECOND)
    bench.release(b"x", b"y")
    bench.run()
    consumer.leave()
    assert bench.figures() == (0, 2, 0)
    assert bench.channel.owns(consumer.received[0].id)
    other = bench.consumer(rdy=5)
    bench.pass_time(10 * SECOND)
    assert [(message.body, message.attempts) for message in other.take()] == [(b"x", 2), (b"y", 2)]
    assert bench.figures() == (0, 2, 0)


def test_several_gone_consumers(bench: Bench) -> None:
    for seconds in (30, 10, 20):
        consumer = bench.consumer(msg_timeout_ns=seconds * SECOND)
        bench.release(b"%d" % seconds)
        bench.run()
        consumer.leave()
    other = bench.consumer(rdy=5, msg_timeout_ns=1_000 * SECOND)
    for seconds in (10, 20, 30):
        bench.pass_time(10 * SECOND)
        assert other.bodies() == [b"%d" % seconds]


def test_a_consumer_that_leaves_the_row(bench: Bench) -> None:
    first, second = bench.consumer(rdy=5), bench.consumer(rdy=5)
    first.leave()
    bench.release(b"x", b"y")
    bench.run()
    assert (first.bodies(), second.bodies()) == ([], [b"x", b"y"])
    first_again = FakeConsumer(bench.world)
    bench.channel.remove_client(first_again)  # it was never there
    assert bench.figures() == (0, 2, 0)


# --- deferred


def test_deferred_messages_come_when_they_are_due(bench: Bench) -> None:
    consumer = bench.consumer(rdy=10)
    now_ns = bench.world.clock()
    bench.release(b"a")
    bench.release(b"late", b"late too", due_ns=now_ns + 20 * SECOND)
    bench.release(b"b")
    bench.release(b"soon", due_ns=now_ns + 10 * SECOND)
    bench.run()
    assert consumer.bodies() == [b"a", b"b"]
    assert bench.figures() == (0, 2, 3)
    bench.pass_time(10 * SECOND)
    assert [(message.body, message.attempts) for message in consumer.take()] == [(b"soon", 1)]
    bench.pass_time(10 * SECOND)
    assert consumer.bodies() == [b"late", b"late too"]
    assert bench.figures() == (0, 5, 0)


def test_due_without_a_consumer(bench: Bench) -> None:
    bench.release(b"x", due_ns=bench.world.clock() + SECOND)
    bench.pass_time(SECOND)
    assert bench.figures() == (1, 0, 0)
    consumer = bench.consumer()
    bench.run()
    assert consumer.bodies() == [b"x"]


def test_deferred_longer_than_all_before(bench: Bench) -> None:
    now_ns = bench.world.clock()
    for seconds in (30, 20, 10):
        bench.release(b"%d" % seconds, due_ns=now_ns + seconds * SECOND)
    consumer = bench.consumer(rdy=10, msg_timeout_ns=100 * SECOND)
    for seconds in (10, 20, 30):
        bench.pass_time(10 * SECOND)
        assert consumer.bodies() == [b"%d" % seconds]


def test_a_client_that_takes_nothing_keeps_nobody_waiting(bench: Bench) -> None:
    """Its RDY was lowered while it stood first in the row."""
    first = bench.consumer(rdy=1)
    second = bench.consumer(rdy=1)
    bench.run()
    first.rdy = 0
    bench.release(b"one")
    bench.run()
    assert (first.bodies(), second.bodies()) == ([], [b"one"])
