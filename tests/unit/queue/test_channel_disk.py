"""Channels: bodies that cannot be read."""

from __future__ import annotations

import pytest

from tests.unit.channel_bench import Bench, bodies, numbered
from tests.unit.fakes import MS, SECOND


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- bodies that cannot be read


def test_it_is_tried_again_later_and_later_up_to_a_minute(bench: Bench) -> None:
    bench.consumer(rdy=20)
    bench.source.error = OSError(5, "input/output error")
    bench.release(*numbered(3))
    started_ns = bench.world.clock()
    tries_s = []
    for _ in range(150):
        before = bench.source.reads
        bench.run()
        if bench.source.reads > before:
            tries_s.append((bench.world.clock() - started_ns) // SECOND)
        bench.world.clock.now_ns += SECOND
        bench.world.alarms.ring_due(bench.world.clock())
    assert tries_s == [0, 1, 3, 7, 15, 31, 63, 123]
    assert bench.statistics() == (0, 0, 3)


def test_a_disk_that_gives_nothing_does_not_keep_the_loop(bench: Bench) -> None:
    bench.consumer(rdy=20)
    bench.source.error = OSError(5, "input/output error")
    for body in numbered(10):
        bench.release(body)
    bench.source.readable_from = lambda seq: seq + 1  # type: ignore[method-assign]
    bench.run()
    assert bench.source.reads == 4
    bench.pass_time(500 * MS)
    assert bench.statistics() == (0, 0, 10)


def test_lost_messages_are_passed_over_and_counted(bench: Bench) -> None:
    bench.release(*numbered(3))
    bench.release(b"lost", b"lost too")
    bench.release(b"there")
    del bench.source.batches[1]
    consumer = bench.consumer(rdy=10)
    bench.run()
    received = consumer.take()
    assert bodies(received) == [*numbered(3), b"there"]
    assert bench.channel.lost_count == 2
    consumer.finish(*received)
    assert bench.statistics() == (0, 0, 0)
    assert bench.channel.position.finished.floor == 6
