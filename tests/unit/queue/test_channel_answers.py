"""Channels: what consumers say, and what becomes of what they do not say."""

from __future__ import annotations

import pytest

from nsqd_py.queue.message_reader import MOST_ATTEMPTS
from tests.unit.channel_bench import Bench


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


# --- deferred


def test_a_client_that_takes_nothing_keeps_nobody_waiting(bench: Bench) -> None:
    """Its RDY was lowered while it stood first in the row."""
    first = bench.consumer(rdy=1)
    second = bench.consumer(rdy=1)
    bench.run()
    first.rdy = 0
    bench.release(b"one")
    bench.run()
    assert (first.bodies(), second.bodies()) == ([], [b"one"])
