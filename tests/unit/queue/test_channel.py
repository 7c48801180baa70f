"""Channels: who gets what, and what is dropped."""

from __future__ import annotations

import random

import pytest

from nsqd_py.queue.position import fair_share
from tests.unit.channel_bench import Bench, bodies, numbered
from tests.unit.fakes import SECOND, FakeConsumer, make_batch


@pytest.fixture
def bench() -> Bench:
    return Bench()


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


def test_after_a_seek_a_consumer_that_was_not_ready_gets_messages_when_it_is(bench: Bench) -> None:
    """It waited for more messages when it set RDY to 0; no message came since, to see that it takes none."""
    consumer = bench.consumer(rdy=5)
    bench.release(*numbered(2))
    bench.run()
    assert len(consumer.take()) == 2
    consumer.set_rdy(0)
    bench.channel.seek(0, [], [], 0)
    bench.run()
    consumer.set_rdy(5)
    bench.run()
    assert len(consumer.take()) == 2
