"""The window of one connection, and what waits for one."""

from __future__ import annotations

from nsqd_py.client.errors import TimedOut
from nsqd_py.client.publishing.publish import DONE, SENT, WAITING, Publish
from nsqd_py.client.publishing.writer import ALONE_AFTER_LOSSES, WaitingRoom, Window, WindowLimits


def make_publish(size_bytes: int = 10, deadline_s: float = 100.0) -> Publish:
    return Publish(b"x" * size_bytes, b"", deadline_s)


def filled(window: Window, count: int) -> list[Publish]:
    publishes = [make_publish() for _ in range(count)]
    window.add(publishes, now_s=0.0)
    return publishes


def has_room(window: Window) -> bool:
    return min(window.room) > 0


def test_answers_are_matched_in_order() -> None:
    window = Window(WindowLimits(10, 1000))
    first, second, third, fourth = filled(window, 4)
    assert [publish.state for publish in window] == [SENT] * 4
    assert window.take_done(2, now_s=1.0) == [first, second]
    assert window.take_refused(now_s=1.0) is third
    assert [first.state, second.state, third.state, fourth.state] == [DONE, DONE, WAITING, SENT]
    assert list(window) == [fourth]


def test_room_is_bounded_by_publishes() -> None:
    window = Window(WindowLimits(2, 1000))
    filled(window, 1)
    assert has_room(window)
    filled(window, 1)
    assert not has_room(window)
    window.take_done(1, now_s=0.0)
    assert has_room(window)


def test_room_is_bounded_by_bytes() -> None:
    window = Window(WindowLimits(100, 25))
    filled(window, 2)
    assert has_room(window)  # the last one may go over the limit
    filled(window, 1)
    assert not has_room(window)
    window.take_done(1, now_s=0.0)
    assert window.size_bytes == 20
    assert has_room(window)


def test_both_parts_of_a_publish_count() -> None:
    window = Window(WindowLimits(100, 1000))
    window.add([Publish(b"head", b"body!", 100.0)], now_s=0.0)
    assert window.size_bytes == 9
    window.take_done(1, now_s=0.0)
    assert window.size_bytes == 0


def test_the_waiting_room_is_half_empty_only_with_both_halves() -> None:
    room = WaitingRoom(WindowLimits(4, 40))
    room.put_back([make_publish(1), make_publish(1)])
    assert room.is_half_empty
    room.add(make_publish(1))
    assert not room.is_half_empty
    other = WaitingRoom(WindowLimits(100, 40))
    other.add(make_publish(21))
    assert not other.is_half_empty


def test_a_lone_publish_lets_no_other_in_until_its_answer() -> None:
    window = Window(WindowLimits(10, 1000))
    window.add([make_publish()], now_s=0.0, is_alone=True)
    assert not has_room(window)
    window.take_done(1, now_s=0.0)
    assert has_room(window)


def test_what_has_failed_meanwhile_is_not_reported_again() -> None:
    window = Window(WindowLimits(10, 1000))
    late, refused, done, lost = filled(window, 4)
    late.fail(TimedOut("a:1", "late"))
    refused.fail(TimedOut("a:1", "late"))
    lost.fail(TimedOut("a:1", "late"))
    assert window.take_done(1, now_s=0.0) == []
    assert window.take_refused(now_s=0.0) is None
    assert window.take_done(1, now_s=0.0) == [done]
    assert window.take_unanswered() == []
    assert len(window) == window.size_bytes == 0


def test_more_answers_than_publishes_do_no_harm() -> None:
    window = Window(WindowLimits(10, 1000))
    publishes = filled(window, 2)
    assert window.take_done(5, now_s=0.0) == publishes
    assert window.size_bytes == 0


def test_it_hangs_when_an_answer_is_due_and_none_comes() -> None:
    window = Window(WindowLimits(10, 1000))
    assert not window.is_hung(now_s=1000.0, answer_timeout_s=5)
    window.add([make_publish()], now_s=1000.0)
    window.add([make_publish()], now_s=1004.0)
    assert not window.is_hung(now_s=1004.9, answer_timeout_s=5)
    assert window.is_hung(now_s=1005.0, answer_timeout_s=5)
    window.take_done(1, now_s=1005.0)  # slow, but alive
    assert not window.is_hung(now_s=1009.9, answer_timeout_s=5)
    assert window.is_hung(now_s=1010.0, answer_timeout_s=5)


def test_who_comes_back_waits_before_the_others() -> None:
    room = WaitingRoom(WindowLimits(10, 1000))
    new, first, second = make_publish(), make_publish(), make_publish()
    room.add(new)
    room.put_back([first, second])
    assert room.take(WindowLimits(3, 1000)) == [first, second, new]


def test_the_waiting_room_is_bounded_too() -> None:
    by_count = WaitingRoom(WindowLimits(2, 1000))
    by_count.add(make_publish())
    assert by_count.has_room
    by_count.add(make_publish())
    assert not by_count.has_room
    by_bytes = WaitingRoom(WindowLimits(10, 15))
    by_bytes.put_back([make_publish(8), make_publish(8)])
    assert not by_bytes.has_room
    by_bytes.take_one()
    assert by_bytes.has_room


def test_what_is_taken_is_what_there_is_room_for() -> None:
    room = WaitingRoom(WindowLimits(10, 1000))
    publishes = [make_publish(10) for _ in range(5)]
    room.put_back(publishes)
    assert room.take(WindowLimits(2, 1000)) == publishes[:2]
    assert room.take(WindowLimits(9, 11)) == publishes[2:4]  # the last one may go over the limit
    assert room.take(WindowLimits(9, 0)) == room.take(WindowLimits(0, 9)) == []
    assert room.size_bytes == 10


def test_one_that_goes_alone_is_not_taken_with_others() -> None:
    room = WaitingRoom(WindowLimits(10, 1000))
    first, suspect, last = make_publish(), make_publish(), make_publish()
    suspect.losses = ALONE_AFTER_LOSSES
    room.put_back([first, suspect, last])
    assert room.take(WindowLimits(9, 1000)) == [first]
    assert room.is_next_alone
    assert room.take(WindowLimits(9, 1000)) == []
    assert room.take_one() == [suspect]
    assert not room.is_next_alone


def test_who_waits_too_long_is_taken_out_of_the_middle() -> None:
    room = WaitingRoom(WindowLimits(10, 1000))
    patient, late, other = make_publish(deadline_s=9), make_publish(deadline_s=5), make_publish(deadline_s=9)
    room.put_back([patient, late, other])
    assert room.take_overdue(now_s=4.9) == []
    assert room.take_overdue(now_s=5.0) == [late]
    assert room.take_all() == [patient, other]
    assert room.has_room
    assert len(room) == 0
