"""Requeued messages are read ahead of their turn, in the order of the log, and given in that of the queue."""

from __future__ import annotations

import random

import pytest

from nsqd_py.batch import Batch
from tests.unit.channel_bench import Bench
from tests.unit.fakes import SECOND, FakeConsumer


@pytest.fixture
def bench() -> Bench:
    return Bench()


def defer_in_any_order(bench: Bench, count: int) -> list[bytes]:
    """Publish that many messages, each due at another time; the bodies by due time."""
    order = list(range(count))
    random.Random(1).shuffle(order)
    now_ns = bench.world.clock()
    for i, place in enumerate(order):
        bench.release(b"%05d" % i, due_ns=now_ns + SECOND + place)
    return [b"%05d" % i for i in sorted(range(count), key=order.__getitem__)]


def reads_of(bench: Bench) -> list[int]:
    """The numbers that are read, from now on."""
    reads: list[int] = []
    by_seq = {batch.first_seq: batch for batch in bench.source.batches}

    def batch_at(seq: int) -> Batch | None:
        reads.append(seq)
        return by_seq[seq]

    bench.source.batch_at = batch_at  # type: ignore[method-assign]
    return reads


def take_all(bench: Bench, consumer: FakeConsumer) -> list[bytes]:
    bodies = []
    while received := consumer.take():
        bodies += [message.body for message in received]
        consumer.finish(*received)
        bench.run()
    return bodies


def test_a_late_turn_goes_on_in_the_next_one(bench: Bench) -> None:
    expected = defer_in_any_order(bench, 1_000)
    reads_of(bench)
    bench.pass_time(2 * SECOND)
    consumer = bench.consumer(rdy=1_000)
    turns = 0
    bodies: list[bytes] = []
    while len(bodies) < 1_000:
        bench.world.iteration.looks_left = 300  # then it is late
        before = len(bodies)
        bench.run()
        bodies += consumer.bodies()
        assert len(bodies) - before <= 300
        turns += 1
        assert turns < 100
        bench.world.alarms.ring_due(bench.world.clock())
    assert bodies == expected
    assert turns > 3


def test_only_a_slice_of_what_is_due_at_one_moment_is_queued_at_once(bench: Bench) -> None:
    due_ns = bench.world.clock() + SECOND
    for i in range(2_000):
        bench.release(b"%05d" % i, due_ns=due_ns)
    bench.world.clock.now_ns = due_ns
    depths = []
    while bench.channel.deferred_count:
        bench.world.alarms.ring_due(bench.world.clock())
        depths.append(bench.channel.depth)
        bench.world.clock.now_ns += 1
    assert depths[-1] == 2_000
    assert max(after - before for before, after in zip([0, *depths], depths, strict=False)) <= 1_000


def test_no_more_is_read_ahead_than_the_most_bytes(bench: Bench) -> None:
    """30 messages of 500 kB: four or five at a time."""
    now_ns = bench.world.clock()
    for i in range(30):
        bench.release(b"%05d" % i * 100_000, due_ns=now_ns + SECOND - i)
    reads = reads_of(bench)
    bench.pass_time(2 * SECOND)
    consumer = bench.consumer(rdy=1)
    bench.run()
    assert len(reads) <= 7
    assert [body[:5] for body in take_all(bench, consumer)] == [b"%05d" % i for i in reversed(range(30))]
    assert len(reads) <= 60
