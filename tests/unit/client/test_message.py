"""Messages are answered once; what is in flight is known; answers leave together."""

from __future__ import annotations

import pytest

from nsqd_py.client.message import AlreadyAnswered
from tests.support.subscription import World, message_id


def test_a_new_connection_is_asked_for_messages() -> None:
    world = World()
    assert world.ready == ["output"]
    assert world.sent() == [b"RDY 100"]


def test_a_message_knows_what_it_is() -> None:
    message = World().batch(1, 7, attempts=3).messages()[1]
    assert (message.id, message.body, message.timestamp_ns, message.attempts) == (message_id(7), b"body 7", 1007, 3)
    assert (message.topic, message.channel, message.nsqd) == ("topic", "channel", "nsqd:4150")
    assert not message.is_answered
    assert not message.is_detached
    assert message.is_live


def test_answers_leave_together() -> None:
    world = World()
    first, second, third = world.batch(1, 2, 3).messages()
    world.sent()
    first.finish()
    second.requeue(1.5)
    third.finish()
    assert world.ready == ["output"]  # reported once
    assert world.sent() == [b"FIN " + message_id(1), b"FIN " + message_id(3), b"REQ " + message_id(2) + b" 1500", b"RDY 0"]
    assert world.sent() == []


def test_what_is_in_flight_is_counted() -> None:
    world = World()
    batch = world.batch(1, 2, 3)
    world.batch(4)
    assert world.subscription.in_flight == 4
    batch.finish_some(batch.ids[:1])
    assert world.subscription.in_flight == 3
    batch.finish()
    assert (world.subscription.in_flight, batch.open_count) == (1, 0)
    stats = world.subscription.stats()
    assert (stats.received, stats.finished, stats.requeued, stats.in_flight) == (4, 3, 0, 1)


@pytest.mark.parametrize("first", ["finish", "requeue"])
@pytest.mark.parametrize("second", ["finish", "requeue", "touch"])
def test_a_message_is_answered_once(first: str, second: str) -> None:
    world = World()
    message = world.batch(1).messages()[0]
    getattr(message, first)()
    world.sent()
    assert message.is_answered
    with pytest.raises(AlreadyAnswered):
        getattr(message, second)()
    assert world.sent() == []


def test_answering_a_batch_answers_its_messages() -> None:
    world = World()
    batch = world.batch(1, 2)
    first, second = batch.messages()
    first.finish()
    assert list(batch.open_ids()) == [message_id(2)]
    world.sent()
    batch.finish()
    assert world.sent() == [b"FIN " + message_id(2)]
    assert second.is_answered
    assert batch.is_answered
    with pytest.raises(AlreadyAnswered):
        batch.finish()
    with pytest.raises(AlreadyAnswered):
        second.finish()


@pytest.mark.parametrize("ids", [[1, 1], [1, 9], [2], [1, 2]])
def test_some_are_finished_all_or_none(ids: list[int]) -> None:
    world = World()
    batch = world.batch(1, 2, 3)
    batch.finish_some([message_id(2)])
    world.sent()
    with pytest.raises(AlreadyAnswered):
        batch.finish_some([message_id(number) for number in ids])
    assert world.sent() == []
    assert batch.open_count == 2


def test_a_batch_is_requeued_by_attempts_and_without_backoff() -> None:
    world = World(default_requeue_delay=2, max_requeue_delay=5)
    world.batch(1, attempts=2).requeue()
    world.batch(2, attempts=9).requeue()
    third = world.batch(3, 4)
    third.requeue(0.25, ids=[message_id(4)])
    commands = [b"REQ %b %d" % (message_id(number), ms) for number, ms in ((1, 4000), (2, 5000), (4, 250))]
    assert world.sent()[1:] == commands
    assert world.subscription.stats().backoff.level == 0
    assert third.open_count == 1


def test_an_id_that_is_here_twice_counts_once_when_it_is_answered() -> None:
    """It timed out, and came again before the first was read."""
    world = World()
    batch = world.batch(1, 1, 2)
    one, same, other = batch.messages()
    one.finish()
    assert same.is_answered
    other.finish()
    assert batch.is_answered
    assert world.subscription.in_flight == 0


def test_failures_slow_the_flow_and_a_success_restores_it() -> None:
    world = World()
    world.sent()
    bad, good = world.batch(1, 2).messages()
    bad.requeue()
    assert world.sent()[-1] == b"RDY 0"
    world.now_s = 2.0
    world.subscription.tick()
    assert world.sent() == [b"RDY 1"]
    good.finish()
    assert world.sent()[-1] == b"RDY 100"
    assert [line.partition(":")[0] for line in world.news] == ["back-off, level 1", "back-off, level 1", "back-off is over"]


def test_unanswered_messages_are_touched() -> None:
    world = World()
    batch = world.batch(1, 2, 3)
    batch.finish_some([message_id(2)])
    world.sent()
    assert world.subscription.due_s <= 36.0
    world.now_s = 36.0
    world.subscription.tick()
    assert world.sent() == [b"TOUCH " + message_id(1), b"TOUCH " + message_id(3)]
    assert world.subscription.stats().touched == 2


def test_what_timed_out_is_in_flight_no_more_and_its_answers_still_leave() -> None:
    world = World()
    batch = world.batch(1, 2)
    world.now_s = 900.0
    world.subscription.tick()
    stats = world.subscription.stats()
    assert (stats.timed_out, stats.in_flight, batch.is_live) == (2, 0, False)
    world.sent()
    batch.finish()
    assert len(world.sent()) == 2
    assert world.subscription.in_flight == 0


def test_answers_to_a_lost_connection_go_nowhere() -> None:
    world = World()
    first, second, third = world.batch(1, 2, 3).messages()
    first.finish()
    world.sent()
    world.subscription.closed(world.window)
    assert not second.is_live
    second.finish()
    third.requeue()
    assert world.sent() == []
    stats = world.subscription.stats()
    assert (stats.received, stats.finished, stats.in_flight, stats.connections) == (3, 1, 0, {})
    assert stats.backoff.level == 0


def test_a_pause_asks_for_nothing() -> None:
    world = World()
    world.sent()
    world.subscription.flow.pause()
    assert world.sent() == [b"RDY 0"]
    world.subscription.flow.set_max_in_flight(7)
    assert world.sent() == []
    world.subscription.flow.pause(is_paused=False)
    assert world.sent() == [b"RDY 7"]


def test_starved_is_who_has_nearly_all_in_flight() -> None:
    world = World(max_in_flight=10)
    assert not world.subscription.is_starved
    world.batch(*range(8))
    assert not world.subscription.is_starved
    world.batch(8)
    assert world.subscription.is_starved
