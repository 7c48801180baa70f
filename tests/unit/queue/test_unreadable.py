"""A bad place on the disk: what lies there waits, and everything else is delivered."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.queue.channel import Channel
from tests.unit.fakes import SECOND, FakeConsumer, World, sized, start_broker

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
        topic.buffer.publish(sized(*(b"%06d" % i + b"x" * SIZE for i in range(low, low + 10))), 10, 0, None, 0)
        world.run()
    return broker


def consume(world: World, channel: Channel) -> list[int]:
    """All that comes now."""
    consumer = FakeConsumer(world, COUNT).subscribe(channel)
    world.run()
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
