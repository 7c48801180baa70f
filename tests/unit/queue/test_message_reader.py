"""Requeued messages are read ahead of their turn, in the order of the log, and given in that of the queue."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any
from unittest import mock
from unittest.mock import Mock

import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.queue.channel import Channel
from tests.unit.channel_bench import Bench
from tests.unit.fakes import SECOND, FakeConsumer, World, start_broker


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


def count_reads(bench: Bench) -> Mock:
    """A mock that is asked for each message by its number, from now on."""
    by_seq = {batch.first_seq: batch for batch in bench.source.batches}
    bench.source.batch_at = Mock(side_effect=by_seq.__getitem__)
    return bench.source.batch_at


def take_all(bench: Bench, consumer: FakeConsumer) -> list[bytes]:
    bodies = []
    while received := consumer.take():
        bodies += [message.body for message in received]
        consumer.finish(*received)
        bench.run()
    return bodies


def test_a_late_turn_goes_on_in_the_next_one(bench: Bench) -> None:
    expected = defer_in_any_order(bench, 1_000)
    count_reads(bench)
    bench.pass_time(2 * SECOND)
    consumer = bench.consumer(rdy=1_000)
    turns = 0
    bodies = []
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
    reads = count_reads(bench)
    bench.pass_time(2 * SECOND)
    consumer = bench.consumer(rdy=1)
    bench.run()
    assert reads.call_count <= 7
    assert [body[:5] for body in take_all(bench, consumer)] == [b"%05d" % i for i in reversed(range(30))]
    assert reads.call_count <= 60


# --- a bad place on the disk: what lies there waits, and everything else is delivered


COUNT, SIZE = 3_000, 1_000
FILE_BYTES = 2_000_000
PLACE_BYTES = 256 * 1024  # how far apart places are from where a file can be read


def bad_disk(low: int, high: int, *, gives_what_is_before: bool) -> Any:
    """Reading fails in these bytes of the first file; kernels give what is before them, but need not."""
    real = os.pread

    def pread(fd: int, size: int, offset: int) -> bytes:
        is_first_file = os.readlink(f"/proc/self/fd/{fd}").endswith(".00000000000000000000.log")
        if not is_first_file or offset + size <= low or offset >= high:
            return real(fd, size, offset)
        if offset < low and gives_what_is_before:
            return real(fd, low - offset, offset)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    return mock.patch.object(os, "pread", pread)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def broker(world: World, tmp_path: Path) -> Broker:
    """With some messages, of which none is in memory."""
    broker = start_broker(world, tmp_path, mem_queue_size=0, max_bytes_per_file=FILE_BYTES)
    topic = broker.get_topic("orders")
    broker.get_channel(topic, "ch")
    for low in range(0, COUNT, 10):
        world.publish(topic, *[b"%06d" % i + b"x" * SIZE for i in range(low, low + 10)])
    return broker


def consume(world: World, channel: Channel) -> list[int]:
    """All that comes now."""
    consumer = world.consumer(channel, COUNT)
    world.pass_time(SECOND // 2)
    received = consumer.take()
    consumer.finish(*received)
    consumer.leave()
    return [int(message.body[:6]) for message in received]


@pytest.mark.parametrize("gives_what_is_before", [True, False])
def test_a_bad_place_is_in_nobodys_way(world: World, broker: Broker, gives_what_is_before: bool) -> None:
    channel = broker.topics["orders"].channels["ch"]
    with bad_disk(700_000, 704_096, gives_what_is_before=gives_what_is_before):
        came = consume(world, channel)
        missing = set(range(COUNT)) - set(came)
        assert 690 in missing  # there it is bad, and no further than to the next places
        assert missing == set(range(min(missing), max(missing) + 1))
        assert len(missing) <= 2 * PLACE_BYTES // SIZE
        assert (channel.distributor.unreadable_count, channel.deferred_count) == (len(missing), len(missing))
        assert channel.position.finished.island_count == 1  # a crash would let them come again
        world.pass_time(10 * SECOND)
        assert consume(world, channel) == []
    assert len(world.log.errors) <= 3  # a line in ten seconds
    world.pass_time(60 * SECOND)
    assert consume(world, channel) == sorted(missing)
    assert (channel.distributor.unreadable_count, channel.depth, channel.lost_count) == (0, 0, 0)
    assert channel.position.finished.floor == COUNT


def test_a_file_that_was_cut_while_it_is_read_is_damage(world: World, broker: Broker, tmp_path: Path) -> None:
    """Inside a record: reading gives less than there was, and no error."""
    path = min(tmp_path.glob("orders.*.log"))
    os.truncate(path, 1_000_100)
    channel = broker.topics["orders"].channels["ch"]
    came = consume(world, channel)
    assert channel.lost_count == COUNT - len(came) > 900
    assert channel.depth == channel.distributor.unreadable_count == 0
