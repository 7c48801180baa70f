"""The bounds on long answers: how many run at once, how many bytes are unread, and which requests wait."""

from __future__ import annotations

from collections.abc import Callable

import gevent
import pytest
from gevent.queue import Queue

from nsqd_py.errors import HttpError
from nsqd_py.net.http.limiter import (
    MOST_REMOTE,
    MOST_RUNNING,
    MOST_UNREAD_BYTES,
    MOST_UNREAD_OF_ADDRESS,
    ResponseLimiter,
)

PEER = "192.0.2.1:5000"
OTHER = "192.0.2.2:5000"


class Running:
    """A request that runs in its own greenlet, step by step."""

    def __init__(self, room: ResponseLimiter) -> None:
        self._room = room
        self._steps: Queue = Queue()
        self._results: Queue = Queue()
        self._greenlet = gevent.spawn(self._run)
        assert self._results.get(timeout=40) is None

    @property
    def is_running(self) -> bool:
        return not self._greenlet.dead

    def _run(self) -> None:
        assert self._room.enter(PEER)
        self._results.put(None)
        for step in iter(self._steps.get, None):
            try:
                step()
            except HttpError as error:
                self._results.put(error)
            else:
                self._results.put(None)
        self._room.leave()

    def go_on(self, step: Callable[[], object]) -> None:
        """Let it do this. Raises HttpError."""
        self._steps.put(step)
        error = self._results.get(timeout=40)
        if error is not None:
            raise error

    def end(self) -> None:
        self._steps.put(None)
        self._greenlet.join(40)


def test_a_few_run_at_once_and_the_next_waits_for_one_to_leave() -> None:
    room = ResponseLimiter()
    first = [Running(room) for _ in range(MOST_RUNNING)]
    assert not room.enter(OTHER, wait_s=0.001)
    waiting = gevent.spawn(room.enter, OTHER)
    gevent.sleep(0)
    first[0].end()
    assert waiting.get(timeout=40) is True


def test_requests_that_wait_for_another_machine_give_their_places_to_others() -> None:
    room = ResponseLimiter()
    first = [Running(room) for _ in range(MOST_RUNNING)]
    for request in first:
        request.go_on(room.make_remote)
        request.go_on(room.make_remote)  # once is enough
    local = [Running(room) for _ in range(MOST_RUNNING)]
    assert not room.is_open(OTHER)
    with pytest.raises(HttpError, match="TOO_MANY_READERS"):
        local[0].go_on(lambda: room.make_remote(wait_s=0.001))
    local[0].end()
    assert room.enter(OTHER)  # one place is free, not two
    assert not room.is_open(OTHER)
    room.leave()
    first[0].end()
    local[1].go_on(room.make_remote)
    assert all(request.is_running for request in (first[1], local[1]))


def test_who_holds_no_place_needs_none_to_wait_for_another_machine() -> None:
    room = ResponseLimiter()
    for _ in range(MOST_REMOTE):
        Running(room).go_on(room.make_remote)
    room.make_remote(wait_s=0)


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
