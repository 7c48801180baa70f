"""Channels: who gets what, and what becomes of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nsqd_py.batch import Batch
from nsqd_py.channel import MAX_ATTEMPTS, Channel, group_waiting, restore_position
from nsqd_py.delivery import Position, fair_share
from nsqd_py.diskqueue.journal import Journal, SavedPosition
from nsqd_py.diskqueue.ranges import SeqRanges
from tests.unit.fakes import MS, SECOND, FakeConsumer, Received, World, limits, make_batch


class Source:
    """Batches in memory; a disk that may fail, or have lost some."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.error: OSError | None = None
        self.fails_from = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end_seq if self.batches else 0

    def batch_at(self, seq: int) -> Batch | None:
        if self.error is not None and seq >= self.fails_from:
            raise self.error
        return next((batch for batch in self.batches if batch.end_seq > seq), None)


class Bench:
    """A channel with what it needs."""

    def __init__(self) -> None:
        self.world = World()
        self.source = Source()
        self.limits = limits(mem_queue_size=10)
        self.changes = 0
        self.channel = self.new_channel()

    def new_channel(self, name: str = "ch", journal: Journal | None = None) -> Channel:
        def count(_: Channel) -> None:
            self.changes += 1

        world = self.world
        self.channel = Channel(
            name, Position(self.source.end, self.source.end), self.source, self.limits, world.turn, world.alarms,
            world.clock, journal, count, keeps_batches=False,
        )  # fmt: skip
        return self.channel

    def release(self, *bodies: bytes, due_ns: int = 0) -> None:
        """One batch more."""
        batch = make_batch(self.source.end, *bodies, due_ns=due_ns)
        self.source.batches.append(batch)
        deferred = [(batch.first_seq, batch.end_seq, due_ns)] if due_ns else []
        self.channel.release(batch.first_seq, batch.end_seq, deferred)

    def consumer(self, rdy: int = 1, msg_timeout_ns: int = 60 * SECOND, room: int = 1 << 40) -> FakeConsumer:
        return FakeConsumer(self.world, rdy, msg_timeout_ns, room).subscribe(self.channel)

    def run(self) -> None:
        self.world.run()

    def pass_time(self, ns: int) -> None:
        self.world.pass_time(ns)

    def figures(self) -> tuple[int, int, int]:
        channel = self.channel
        return channel.depth, channel.in_flight_count, channel.deferred_count


@pytest.fixture
def bench() -> Bench:
    return Bench()


def numbered(count: int) -> list[bytes]:
    return [b"%03d" % i for i in range(count)]


def bodies(received: list[Received]) -> list[bytes]:
    return [message.body for message in received]


# --- who gets how many


@pytest.mark.parametrize(
    ("available", "clients", "share"), [(1, 1, 1), (10, 1, 10), (10, 3, 4), (2, 5, 1), (9, 3, 3), (2500, 2, 1250)]
)
def test_fair_share(available: int, clients: int, share: int) -> None:
    assert fair_share(available, clients) == share


def test_a_consumer_gets_what_there_is_up_to_its_rdy(bench: Bench) -> None:
    consumer = bench.consumer(rdy=3)
    bench.release(*numbered(5))
    bench.run()
    assert consumer.bodies() == [b"000", b"001", b"002"]
    assert bench.figures() == (2, 3, 0)
    assert consumer.message_count == 3


def test_nothing_for_rdy_0(bench: Bench) -> None:
    consumer = bench.consumer(rdy=0)
    bench.release(b"x")
    bench.run()
    assert consumer.take() == []
    consumer.set_rdy(1)
    bench.run()
    assert consumer.bodies() == [b"x"]


def test_rdy_below_what_is_in_flight(bench: Bench) -> None:
    """A client in the row may have lowered its RDY, or said CLS, since it came into it."""
    consumer = bench.consumer(rdy=10)
    bench.release(*numbered(5))
    bench.run()
    received = consumer.take()
    assert len(received) == 5
    consumer.rdy = 2
    bench.release(*numbered(3))
    bench.run()
    assert consumer.take() == []
    assert bench.figures() == (3, 5, 0)
    consumer.finish(*received[:3])
    bench.run()
    assert consumer.take() == []
    consumer.finish(received[3])
    bench.run()
    assert consumer.bodies() == [b"000"]


def test_rdy_below_what_is_in_flight_while_something_is_queued_again(bench: Bench) -> None:
    consumer = bench.consumer(rdy=10)
    bench.release(*numbered(5))
    bench.run()
    received = consumer.take()
    consumer.rdy = 2
    consumer.requeue(received[0])
    bench.run()
    assert consumer.take() == []
    assert bench.figures() == (1, 4, 0)


def test_messages_are_shared_fairly(bench: Bench) -> None:
    consumers = [bench.consumer(rdy=100) for _ in range(4)]
    bench.release(*numbered(100))
    bench.run()
    assert [len(consumer.received) for consumer in consumers] == [25] * 4
    assert sorted(body for consumer in consumers for body in bodies(consumer.received)) == numbered(100)


def test_what_one_cannot_take_the_others_get(bench: Bench) -> None:
    small, large = bench.consumer(rdy=3), bench.consumer(rdy=100)
    bench.release(*numbered(50))
    bench.run()
    assert (len(small.received), len(large.received)) == (3, 47)


def test_lone_messages_go_around(bench: Bench) -> None:
    consumers = [bench.consumer(rdy=5) for _ in range(3)]
    for i in range(6):
        bench.release(b"%d" % i)
        bench.run()
    assert [len(consumer.received) for consumer in consumers] == [2, 2, 2]


def test_fewer_messages_than_consumers(bench: Bench) -> None:
    consumers = [bench.consumer(rdy=5) for _ in range(5)]
    bench.release(*numbered(2))
    bench.run()
    assert [len(consumer.received) for consumer in consumers] == [1, 1, 0, 0, 0]


def test_a_run_over_several_batches(bench: Bench) -> None:
    for i in range(5):
        bench.release(*[b"%d-%d" % (i, j) for j in range(4)])
    consumer = bench.consumer(rdy=18)
    bench.run()
    assert consumer.bodies() == [b"%d-%d" % (i, j) for i in range(5) for j in range(4)][:18]
    assert bench.figures() == (2, 18, 0)


def test_no_more_than_there_is_room_for(bench: Bench) -> None:
    consumer = bench.consumer(rdy=100, room=5_000)
    bench.release(*[b"x" * 1_000] * 20)
    bench.run()
    assert 4 <= len(consumer.take()) <= 6
    consumer.drain()
    bench.run()
    assert 4 <= len(consumer.take()) <= 6


def test_no_more_than_there_is_room_for_of_what_is_queued_again(bench: Bench) -> None:
    """A thousand large messages that timed out together do not go out together."""
    first = bench.consumer(rdy=1_000)
    bench.release(*[b"x" * 1_000] * 500)
    bench.run()
    first.leave()
    bench.pass_time(60 * SECOND)
    assert bench.figures() == (500, 0, 0)
    second = bench.consumer(rdy=1_000, room=10_000)
    bench.run()
    assert 9 <= len(second.received) <= 12
    assert bench.figures() == (500 - len(second.received), len(second.received), 0)


def test_a_message_larger_than_the_room_goes_out_alone(bench: Bench) -> None:
    consumer = bench.consumer(rdy=100, room=10)
    bench.release(b"x" * 1_000, b"y" * 1_000)
    bench.run()
    assert consumer.bodies() == [b"x" * 1_000]


def test_no_more_consumers_than_allowed(bench: Bench) -> None:
    bench.limits.max_channel_consumers = 2
    first = bench.consumer()
    bench.consumer()
    assert not bench.channel.add_client(FakeConsumer(bench.world))
    first.leave()
    assert bench.channel.add_client(FakeConsumer(bench.world))


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


def test_queued_again_comes_before_fresh_ones(bench: Bench) -> None:
    consumer = bench.consumer(rdy=2)
    bench.release(*numbered(4))
    bench.run()
    first, second = consumer.take()
    consumer.requeue(first)
    consumer.requeue(second)
    bench.run()
    assert consumer.bodies() == [b"000", b"001"]


def test_attempts_stay_within_their_field(bench: Bench) -> None:
    bench.release(b"x")
    position = bench.channel.position
    position.take_fresh(1)
    position.queue_again((0, 1, MAX_ATTEMPTS, None))
    consumer = bench.consumer()
    bench.run()
    assert [message.attempts for message in consumer.take()] == [MAX_ATTEMPTS]


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


# --- pause


def test_pause(bench: Bench) -> None:
    consumer = bench.consumer(rdy=10)
    bench.channel.pause()
    bench.release(b"x")
    bench.run()
    assert consumer.take() == []
    assert bench.figures() == (1, 0, 0)
    bench.channel.unpause()
    bench.run()
    assert consumer.bodies() == [b"x"]


def test_pause_before_the_turn_ends(bench: Bench) -> None:
    consumer = bench.consumer(rdy=10)
    bench.release(b"x")
    bench.channel.pause()
    bench.run()
    assert consumer.take() == []
    bench.channel.unpause()
    bench.run()
    assert consumer.bodies() == [b"x"]


@pytest.mark.parametrize("event", ["requeue", "time-out", "due", "ready"])
def test_nothing_goes_out_while_paused(bench: Bench, event: str) -> None:
    consumer = bench.consumer(rdy=1, msg_timeout_ns=10 * SECOND)
    bench.release(b"x")
    bench.run()
    (message,) = consumer.take()
    bench.channel.pause()
    if event == "requeue":
        consumer.requeue(message)
    elif event == "time-out":
        bench.pass_time(10 * SECOND)
    elif event == "due":
        consumer.requeue(message, SECOND)
        bench.pass_time(SECOND)
    else:
        bench.release(b"y")
        consumer.set_rdy(5)
    bench.run()
    assert consumer.take() == []
    assert bench.channel.depth == 1
    bench.channel.unpause()
    bench.run()
    assert len(consumer.take()) == 1


# --- sampling


def test_sampling_finishes_what_it_leaves_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    chances = iter([0, 99, 10, 11, 50])
    monkeypatch.setattr(random, "randrange", lambda _: next(chances))
    consumer = bench.consumer(rdy=100)
    consumer.sample_rate = 10
    bench.release(*numbered(5))
    bench.run()
    received = consumer.take()
    assert bodies(received) == [b"000", b"002"]
    assert bench.figures() == (0, 2, 0)
    consumer.finish(*received)
    assert bench.channel.position.finished.floor == 5


def test_sampling_goes_on_until_the_consumer_is_full(bench: Bench) -> None:
    consumer = bench.consumer(rdy=3)
    consumer.sample_rate = 20
    bench.release(*numbered(300))
    bench.run()
    assert len(consumer.take()) == 3


# --- ephemeral channels


def test_an_ephemeral_channel_drops_what_does_not_fit(bench: Bench) -> None:
    channel = bench.new_channel("ch#ephemeral")
    bench.release(*numbered(8))
    bench.release(*[b"1%02d" % i for i in range(8)])
    assert bench.figures() == (10, 0, 0)
    assert channel.message_count == 16
    consumer = bench.consumer(rdy=100)
    bench.run()
    received = consumer.take()
    assert bodies(received) == [*numbered(8), b"100", b"101"]
    bench.release(b"next")
    bench.run()
    received += consumer.received
    assert consumer.bodies() == [b"next"]
    consumer.finish(*received)
    assert channel.position.finished.floor == 17


def test_an_ephemeral_channel_has_room_for_those_who_are_ready(bench: Bench) -> None:
    bench.new_channel("ch#ephemeral")
    consumer = bench.consumer(rdy=5)
    bench.release(*numbered(20))
    assert bench.figures() == (15, 0, 0)
    bench.run()
    assert bench.figures() == (10, 5, 0)
    assert consumer.bodies() == numbered(5)


def test_a_ready_consumer_makes_no_room_twice(bench: Bench) -> None:
    """RDY that was lowered since is no room, and takes none away either."""
    bench.new_channel("ch#ephemeral")
    consumer = bench.consumer(rdy=10)
    bench.release(*numbered(5))
    bench.run()
    consumer.rdy = 1
    bench.release(*numbered(10))
    assert bench.figures() == (10, 5, 0)


def test_an_ephemeral_channel_drops_also_while_messages_are_deferred(bench: Bench) -> None:
    bench.new_channel("ch#ephemeral")
    due_ns = bench.world.clock() + SECOND
    for i in range(30):
        batch = make_batch(bench.source.end, b"now%d" % i, b"now too")
        later = make_batch(batch.end_seq, b"later", due_ns=due_ns)
        bench.source.batches += [batch, later]
        bench.channel.release(batch.first_seq, later.end_seq, [(later.first_seq, later.end_seq, due_ns)])
    assert bench.channel.depth <= 10


# --- empty


def test_empty_drops_everything(bench: Bench) -> None:
    consumer = bench.consumer(rdy=2)
    bench.release(*numbered(6))
    bench.release(b"later", due_ns=bench.world.clock() + SECOND)
    bench.run()
    first, second = consumer.take()
    consumer.requeue(first, SECOND)
    bench.run()
    bench.channel.empty()
    assert bench.figures() == (0, 0, 0)
    assert consumer.finish(second) == [second.id]
    bench.pass_time(1_000 * SECOND)
    assert bench.figures() == (0, 0, 0)
    assert bench.channel.position.finished.floor == 7


def test_consumers_go_on_after_empty(bench: Bench) -> None:
    consumer = bench.consumer(rdy=2)
    bench.release(*numbered(4))
    bench.run()
    consumer.take()
    bench.channel.empty()
    bench.release(b"new")
    bench.run()
    assert consumer.bodies() == [b"new"]
    assert bench.figures() == (0, 1, 0)


def test_empty_before_the_turn_ends(bench: Bench) -> None:
    consumer = bench.consumer(rdy=2)
    bench.release(*numbered(4))
    bench.channel.empty()
    bench.run()
    assert consumer.take() == []


def test_empty_forgets_what_gone_consumers_had(bench: Bench) -> None:
    consumer = bench.consumer(rdy=2)
    bench.release(b"x", b"y")
    bench.run()
    consumer.leave()
    bench.channel.empty()
    assert bench.figures() == (0, 0, 0)
    bench.pass_time(1_000 * SECOND)
    assert bench.figures() == (0, 0, 0)
    assert bench.channel.timeout_count == 0


# --- bodies that cannot be read


def test_nothing_is_lost_when_reading_fails(bench: Bench) -> None:
    consumer = bench.consumer(rdy=10)
    bench.source.error = OSError(5, "input/output error")
    bench.release(*numbered(3))
    bench.run()
    assert consumer.take() == []
    assert bench.figures() == (3, 0, 0)
    bench.source.error = None
    bench.pass_time(2 * SECOND)
    assert consumer.bodies() == numbered(3)
    assert bench.channel.lost_count == 0


def test_nothing_is_lost_when_reading_fails_for_what_is_queued_again(bench: Bench) -> None:
    consumer = bench.consumer(rdy=3)
    bench.release(*numbered(3))
    bench.run()
    received = consumer.take()
    bench.source.error = OSError(5, "input/output error")
    for message in received:
        consumer.requeue(message)
    bench.run()
    assert bench.figures() == (3, 0, 0)
    bench.pass_time(3 * SECOND)
    assert bench.figures() == (3, 0, 0)
    bench.source.error = None
    bench.pass_time(2 * SECOND)
    assert [(message.body, message.attempts) for message in consumer.take()] == [(body, 2) for body in numbered(3)]


@pytest.mark.parametrize("again", [False, True])
def test_what_was_sent_before_reading_failed_times_out(bench: Bench, again: bool) -> None:
    consumer = bench.consumer(rdy=0, msg_timeout_ns=10 * SECOND)
    bench.release(b"000")
    bench.release(b"001")
    if again:
        other = bench.consumer(rdy=2)
        bench.run()
        for message in other.take():
            other.requeue(message)
        other.leave()
    bench.source.error = OSError(5, "input/output error")
    bench.source.fails_from = 1
    consumer.set_rdy(5)
    bench.run()
    assert consumer.bodies() == [b"000"]
    assert bench.figures() == (1, 1, 0)
    bench.pass_time(10 * SECOND + MS)
    assert bench.channel.timeout_count == 1


def test_another_consumer_while_reading_fails(bench: Bench) -> None:
    first = bench.consumer(rdy=5)
    bench.source.error = OSError(5, "input/output error")
    bench.release(*numbered(3))
    bench.run()
    first.leave()
    second = bench.consumer(rdy=5)
    bench.run()
    bench.source.error = None
    bench.pass_time(2 * SECOND)
    assert second.bodies() == numbered(3)


def test_a_paused_channel_does_not_retry(bench: Bench) -> None:
    consumer = bench.consumer(rdy=5)
    bench.source.error = OSError(5, "input/output error")
    bench.release(b"x")
    bench.run()
    bench.channel.pause()
    bench.source.error = None
    bench.pass_time(5 * SECOND)
    assert consumer.take() == []


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
    assert bench.figures() == (0, 0, 0)
    assert bench.channel.position.finished.floor == 6


def test_lost_messages_at_the_end(bench: Bench) -> None:
    bench.release(b"there")
    bench.release(b"lost")
    del bench.source.batches[1]
    consumer = bench.consumer(rdy=10)
    bench.run()
    assert consumer.bodies() == [b"there"]
    assert bench.figures() == (0, 1, 0)
    assert bench.channel.lost_count == 1


# --- the journal


Restored = Callable[[], Position]


@pytest.fixture
def restored(bench: Bench, tmp_path: Path) -> Restored:
    """What a crash would leave of a channel with a journal."""
    path = tmp_path / "t:ch.cursor"
    bench.new_channel(journal=Journal(path)).save()

    def restore() -> Position:
        saved = Journal(path).load()
        assert saved is not None
        return restore_position(saved, bench.source.end, [], bench.world.clock())

    return restore


def summary(position: Position) -> tuple[int, int, list[tuple[int, int, int]]]:
    """depth, deferred, and what is queued again."""
    return position.depth, position.deferred.count, sorted((low, high, tries) for low, high, tries, _ in position.again)


def test_changes_survive(bench: Bench, restored: Restored) -> None:
    consumer = bench.consumer(rdy=6)
    bench.release(*numbered(8))
    bench.run()
    received = consumer.take()
    consumer.finish(received[0], received[2], received[3])
    consumer.set_rdy(0)
    consumer.requeue(received[1])
    consumer.requeue(received[4], 5 * SECOND)
    assert bench.changes == 1
    bench.channel.save_changes()
    assert summary(restored()) == (4, 1, [(1, 2, 1)])  # 1, 5, 6, 7; 5 was in flight
    consumer.finish(received[5])
    assert bench.changes == 2
    bench.channel.save_changes()
    assert summary(restored()) == (3, 1, [(1, 2, 1)])


def test_what_is_not_saved_comes_again(bench: Bench, restored: Restored) -> None:
    consumer = bench.consumer(rdy=2)
    bench.release(*numbered(3))
    bench.run()
    consumer.finish(*consumer.take())
    assert summary(restored()) == (3, 0, [])


def test_a_clean_stop_counts_what_is_in_flight_as_tried(bench: Bench, restored: Restored) -> None:
    consumer = bench.consumer(rdy=2)
    bench.release(*numbered(3))
    bench.run()
    consumer.finish(consumer.take()[0])
    bench.run()
    bench.channel.save_at_the_end()
    assert summary(restored()) == (2, 0, [(1, 3, 1)])


def test_a_snapshot_keeps_the_attempts_of_what_is_in_flight(bench: Bench, restored: Restored) -> None:
    consumer = bench.consumer()
    bench.release(b"x")
    bench.run()
    consumer.requeue(consumer.take()[0])
    bench.run()
    assert consumer.take()[0].attempts == 2
    bench.channel.save()
    assert summary(restored()) == (1, 0, [(0, 1, 1)])


def test_changes_that_could_not_be_written_are_written_later(
    bench: Bench, restored: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = bench.consumer(rdy=3)
    bench.release(*numbered(3))
    bench.run()
    received = consumer.take()
    consumer.finish(received[0])
    journal = bench.channel.journal
    assert journal is not None

    def fail(*_: object) -> None:
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "change", fail)
        with pytest.raises(OSError, match="no space"):
            bench.channel.save_changes()
    assert bench.channel.is_dirty
    consumer.finish(received[1])
    bench.channel.save_changes()
    assert not bench.channel.is_dirty
    assert summary(restored()) == (1, 0, [])


def test_emptied_survives(bench: Bench, restored: Restored) -> None:
    bench.consumer(rdy=2)
    bench.release(*numbered(5))
    bench.run()
    bench.channel.empty()
    assert summary(restored()) == (0, 0, [])


# --- a position that is put back


def test_restored_in_full() -> None:
    now_ns = 1_000
    finished = SeqRanges(10, [(12, 14), (20, 21)])
    saved = SavedPosition(finished, {10: (0, 1), 11: (0, 1), 15: (5_000, 2), 16: (500, 3)})
    position = restore_position(saved, 25, [(17, 19, 9_000), (12, 13, 9_000), (22, 23, 900)], now_ns)
    assert position.depth == 15 - 3 - 3  # 10 to 24 but for finished and deferred ones
    assert position.deferred.count == 3
    assert sorted(position.again) == [(10, 12, 1, None), (16, 17, 3, None), (22, 23, 0, None)]
    fresh = []
    while position.fresh_count:
        low, high = position.peek_fresh()
        fresh += range(low, high)
        position.take_fresh(high - low)
    assert fresh == [14, 19, 21, 23, 24]
    assert position.depth == position.again_count


def test_restored_waiting_messages_that_are_finished_by_now() -> None:
    """Records that are lost count as finished, whatever a journal says of them."""
    saved = SavedPosition(SeqRanges(0, [(2, 8)]), {3: (0, 1), 5: (9_000, 1), 9: (0, 1)})
    position = restore_position(saved, 10, [], 1_000)
    assert (position.depth, position.deferred.count, list(position.again)) == (4, 0, [(9, 10, 1, None)])


def test_group_waiting() -> None:
    waiting = {3: (0, 1), 4: (0, 1), 5: (0, 2), 7: (0, 2), 8: (9, 2), 100: (0, 1)}
    assert list(group_waiting(waiting, 50)) == [(3, 5, 0, 1), (5, 6, 0, 2), (7, 8, 0, 2), (8, 9, 9, 2)]
    assert list(group_waiting({}, 50)) == []
    assert list(group_waiting({0: (0, 1)}, 50)) == [(0, 1, 0, 1)]


def test_many_deferred_messages_are_put_back_in_a_moment() -> None:
    """Every other one is finished: as many spans as islands."""
    count = 3_000
    finished = SeqRanges(0)
    for low in range(1, 2 * count, 2):
        finished.add(low, low + 1)
    deferred = [(low, low + 1, 1 << 60) for low in range(0, 2 * count, 2)]
    started_s = time.process_time()
    position = restore_position(SavedPosition(finished, {}), 2 * count, deferred, 1_000)
    assert position.deferred.count == count
    assert time.process_time() - started_s < 0.3  # 1.0 s when each looks through all islands
