"""The bounds on long answers: how many run at once, how many bytes are unread, and which requests wait."""

from __future__ import annotations

import gevent

from nsqd_py.net.http.limiter import MOST_RUNNING, MOST_UNREAD_BYTES, MOST_UNREAD_OF_ADDRESS, ResponseLimiter

PEER = "192.0.2.1:5000"
OTHER = "192.0.2.2:5000"


def test_a_few_run_at_once_and_the_next_waits_for_one_to_leave() -> None:
    room = ResponseLimiter()
    assert all(room.enter(PEER) for _ in range(MOST_RUNNING))
    assert not room.enter(OTHER, wait_s=0.001)
    waiting = gevent.spawn(room.enter, OTHER)
    gevent.sleep(0)
    room.leave()
    assert waiting.get(timeout=40) is True


def test_one_address_leaves_a_part_unread_and_others_go_on() -> None:
    room = ResponseLimiter()
    room.count(PEER, MOST_UNREAD_OF_ADDRESS)
    assert not room.is_open("192.0.2.1:6000")
    assert room.is_open(OTHER)
    room.count(PEER, -MOST_UNREAD_OF_ADDRESS)
    assert room.is_open(PEER)
    assert not room._unread_of


def test_all_addresses_together_leave_no_more_unread_than_there_is_room_for() -> None:
    room = ResponseLimiter()
    for number in range(4):
        room.count(f"192.0.2.{number}:1", MOST_UNREAD_BYTES // 4)
    assert not room.is_open("198.51.100.1:1")
    waiting = gevent.spawn(room.enter, "198.51.100.1:1")
    gevent.sleep(0)
    room.count("192.0.2.0:1", -MOST_UNREAD_BYTES // 4)
    assert waiting.get(timeout=40) is True
