"""Channels: what consumers say, and what becomes of what they do not say."""

from __future__ import annotations

import pytest

from nsqd_py.queue.message_reader import MOST_ATTEMPTS
from tests.unit.channel_bench import Bench
from tests.unit.fakes import SECOND, FakeConsumer


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- finish


# --- requeue


def test_attempts_stay_within_their_field(bench: Bench) -> None:
    bench.release(b"x")
    position = bench.channel.position
    position.take_fresh(1)
    position.queue_again((0, 1, MOST_ATTEMPTS, None))
    consumer = bench.consumer()
    bench.run()
    assert [message.attempts for message in consumer.take()] == [MOST_ATTEMPTS]


# --- time-outs


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
    assert bench.statistics() == (0, 2, 0)


# --- deferred


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
