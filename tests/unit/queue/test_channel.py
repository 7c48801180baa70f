"""Channels: who gets what, what is dropped, and what consumers answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nsqd_py.queue.delivery import MOST_ATTEMPTS
from nsqd_py.queue.position import MOST_AHEAD
from tests.unit.channel_bench import Bench, bodies, numbered
from tests.unit.fakes import MS, SECOND, make_batch


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- who gets how many


def test_lone_messages_go_around(bench: Bench) -> None:
    consumers = [bench.consumer(rdy=5) for _ in range(3)]
    for i in range(6):
        bench.deliver(b"%d" % i)
    assert [len(consumer.received) for consumer in consumers] == [2, 2, 2]


def test_while_nsqd_stops_nothing_is_delivered_and_answers_count(bench: Bench) -> None:
    consumer = bench.consumer(rdy=1)
    bench.deliver(*numbered(3))
    bench.channel.end_delivery()
    assert bench.channel.finish(consumer, [consumer.received[0].id]) == []
    bench.channel.client_ready(consumer)
    bench.deliver(b"late")
    assert bench.statistics() == (3, 0, 0)
    assert consumer.bodies() == numbered(1)


# --- ephemeral channels


def test_an_ephemeral_channel_has_room_for_those_who_are_ready(bench: Bench) -> None:
    bench.new_channel("ch#ephemeral")
    consumer = bench.consumer(rdy=5)
    bench.release(*numbered(20))
    assert bench.statistics() == (15, 0, 0)
    assert bench.channel.dropped_count == 5
    bench.run()
    assert bench.statistics() == (10, 5, 0)
    assert consumer.bodies() == numbered(5)


def test_a_ready_consumer_makes_no_room_twice(bench: Bench) -> None:
    """RDY that was lowered since is no room, and takes none away either."""
    bench.new_channel("ch#ephemeral")
    consumer = bench.consumer(rdy=10)
    bench.deliver(*numbered(5))
    consumer.rdy = 1
    bench.release(*numbered(10))
    assert bench.statistics() == (10, 5, 0)


def test_an_ephemeral_channel_drops_also_while_messages_are_deferred(bench: Bench) -> None:
    bench.new_channel("ch#ephemeral")
    due_ns = bench.world.clock() + SECOND
    for i in range(30):
        batch = make_batch(bench.source.end, b"now%d" % i, b"now too")
        later = make_batch(batch.end_seq, b"later", due_ns=due_ns)
        bench.source.batches += [batch, later]
        bench.channel.release(batch.first_seq, later.end_seq, [(later.first_seq, later.end_seq, due_ns)])
    assert bench.channel.depth <= 10


# --- attempts


def test_attempts_stay_within_their_field(bench: Bench) -> None:
    bench.release(b"x")
    position = bench.channel.position
    position.take_new(1)
    position.requeue((0, 1, MOST_ATTEMPTS, None))
    consumer = bench.consumer()
    bench.run()
    assert [message.attempts for message in consumer.take()] == [MOST_ATTEMPTS]


@pytest.mark.parametrize("delay_ns", [0, SECOND])
def test_after_a_seek_a_requeued_message_does_not_wait_for_older_ones_further_back(
    bench: Bench, delay_ns: int
) -> None:
    last = 3 * MOST_AHEAD - 1
    bench.release(*numbered(last + 1))
    consumer = bench.consumer(rdy=last + 1)
    bench.run()
    consumer.finish(*consumer.take()[:-1])
    bench.channel.seek(0, [], [], 0)
    consumer.rdy = 1  # it has the first message; the last, with its attempts, is queued at its place
    bench.run()
    consumer.requeue(consumer.take()[0], delay_ns)
    bench.pass_time(delay_ns)
    consumer.set_rdy(last + 1)
    bench.run()
    received = [int(body) for body in consumer.bodies()]
    assert sorted(received) == list(range(last + 1))
    assert received.index(0) <= MOST_AHEAD + 1


# --- deferred


def test_a_client_that_takes_nothing_keeps_nobody_waiting(bench: Bench) -> None:
    """Its RDY was lowered while it stood first in the row."""
    first = bench.consumer(rdy=1)
    second = bench.consumer(rdy=1)
    bench.run()
    first.rdy = 0
    bench.deliver(b"one")
    assert (first.bodies(), second.bodies()) == ([], [b"one"])


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
    position = bench.channel.position
    assert (position.finished.floor, position.finished.islands()) == (3, [(5, 6)]), "lost is not finished"
    assert position.settled_floor == 6
    assert position.is_settled(0, 6)


# --- messages that consumers do not finish


def test_a_channel_is_stalled_while_its_consumers_finish_nothing(bench: Bench) -> None:
    clock, channel = bench.world.clock, bench.channel
    clock.now_ns += 100 * SECOND
    consumer = bench.consumer(rdy=1, msg_timeout_ns=1000 * SECOND)
    began_ns = clock.now_ns
    bench.deliver(*numbered(3))
    clock.now_ns += 9 * SECOND
    assert channel.stalled_ns == 0
    clock.now_ns += 2 * SECOND
    assert (channel.stalled_ns >= began_ns, channel.stalled_ns < clock.now_ns, channel.ready_count) == (
        True,
        True,
        1,
    )
    channel.pause()
    assert channel.stalled_ns == 0
    channel.unpause()
    assert channel.stalled_ns == 0
    clock.now_ns += 11 * SECOND
    assert channel.stalled_ns == clock.now_ns - 11 * SECOND
    assert channel.finish(consumer, [consumer.received[0].id]) == []
    assert channel.stalled_ns == 0


def become_due(bench: Bench) -> None:
    consumer = bench.consumer(rdy=3)
    bench.deliver(*numbered(3))
    consumer.rdy = 1
    for message in consumer.take():
        consumer.requeue(message, 100 * SECOND)
    bench.pass_time(100 * SECOND)


def come_back_after_a_seek(bench: Bench) -> None:
    consumer = bench.consumer(rdy=3)
    bench.deliver(*numbered(3))
    consumer.finish(*consumer.take())
    consumer.rdy = 1
    bench.pass_time(100 * SECOND)
    bench.channel.seek(0, [], [], 0)
    bench.run()


def time_out_after_their_consumer_has_left(bench: Bench) -> None:
    other = bench.consumer(rdy=0)
    leaving = bench.consumer(rdy=3, msg_timeout_ns=100 * SECOND)
    bench.deliver(*numbered(3))
    leaving.leave()
    other.set_rdy(1)
    bench.pass_time(100 * SECOND)


def are_requeued(bench: Bench) -> None:
    consumer = bench.consumer(rdy=3, msg_timeout_ns=200 * SECOND)
    bench.deliver(*numbered(3))
    consumer.rdy = 1
    bench.pass_time(100 * SECOND)
    for message in consumer.take():
        consumer.requeue(message)
    bench.run()


@pytest.mark.parametrize(
    "begin", [become_due, come_back_after_a_seek, time_out_after_their_consumer_has_left, are_requeued]
)
def test_old_messages_that_begin_to_wait_are_not_stalled_yet(
    bench: Bench, begin: Callable[[Bench], None]
) -> None:
    """They are much older than ten seconds, and nothing was finished since; but until now nothing waited."""
    begin(bench)
    channel, clock = bench.channel, bench.world.clock
    assert (channel.depth, channel.in_flight_count) == (2, 1)
    assert channel.stalled_ns == 0
    began_ns = clock.now_ns
    bench.pass_time(11 * SECOND)
    assert channel.stalled_ns == began_ns


def test_the_message_that_was_tried_most_often_is_known_until_it_is_finished(bench: Bench) -> None:
    consumer = bench.consumer(rdy=1)
    bench.release(b"poison")
    for attempt in range(1, 4):
        bench.run()
        assert consumer.requeue(consumer.received[-1])
        assert bench.channel.most_attempts == attempt
    bench.run()
    assert consumer.finish(consumer.received[-1]) == []
    assert bench.channel.most_attempts == 0
