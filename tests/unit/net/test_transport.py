"""The state of a connection, and the reason why it reads no input."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Any

import gevent
import pytest

from nsqd_py.net import transport
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.transport import (
    CLOSED,
    CLOSING,
    DEAF,
    DECODING,
    HELD,
    NOTHING,
    OPEN,
    OUTPUT,
    PAUSED,
    START,
    UNHANDLED,
    UNREAD,
    Stream,
)
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from tests.support.served_broker import wait_in_loop

pytestmark = pytest.mark.skipif(
    not transport.__file__.endswith(".py"), reason="no class is derived from a compiled one"
)

STATES = (OPEN, PAUSED, DEAF, CLOSING, CLOSED)


def let_loop_run() -> None:
    """Let the event loop read and send what it can."""
    for _ in range(5):
        gevent.sleep(0.001)


class ByteLayer:
    """A layer that returns one byte at a time."""

    is_secure = False
    is_open = True

    def __init__(self) -> None:
        self._input = b""

    @property
    def has_more(self) -> bool:
        return bool(self._input)

    def decode(self, received: bytes) -> bytes:
        data = self._input + received
        self._input = data[1:]
        return data[:1]

    def encode(self, data: bytes) -> bytes:
        return data

    def take_output(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""


class Reader(Stream):
    """A connection that keeps what it reads. While `takes_long`, its input is handled in the backlog."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.takes_long = False
        self.is_acting = True
        self.late = b""
        self.handled = b""

    def on_data(self, data: bytes) -> None:
        if self.takes_long:
            self.late += data
            self._fall_behind()
        else:
            self.handled += data

    def act(self) -> None:
        if not self.is_acting:
            self._fall_behind()
            return
        data, self.late = self.late, b""
        self._catch_up()
        self.handled += data


class Pair:
    """A connection, and the socket of its peer."""

    def __init__(self) -> None:
        hub, log = gevent.get_hub(), Log(level=FATAL)
        self.iteration = LoopIteration(hub, log)
        self.peer, ours = socket.socketpair()
        self.peer.setblocking(False)
        self.stream = Reader(ours, "127.0.0.1:5", hub.loop, self.iteration, log)

    def say(self, data: bytes) -> None:
        self.peer.send(data)
        let_loop_run()

    def heard(self) -> bytes:
        try:
            return self.peer.recv(1 << 20)
        except BlockingIOError:
            return b""


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.stream.close("the end of the test")
    pair.stream._sock.close()  # also if the test has entered CLOSED by itself
    pair.peer.close()


def test_a_new_connection_waits_for_its_start(pair: Pair) -> None:
    stream = pair.stream
    assert (stream.state, stream.waits_for, stream.is_reading) == (OPEN, START, False)
    pair.say(b"a")
    assert stream.handled == b""
    stream.start()
    wait_in_loop(lambda: stream.handled == b"a")
    assert (stream.waits_for, stream.is_reading) == (NOTHING, True)


@pytest.mark.parametrize("begun", STATES)
@pytest.mark.parametrize("wanted", STATES)
def test_the_state_only_moves_forward(pair: Pair, begun: int, wanted: int) -> None:
    pair.stream._enter(begun)
    pair.stream._enter(wanted)
    assert pair.stream.state == max(begun, wanted)


@pytest.mark.parametrize("begun", STATES)
def test_the_end_of_a_pause_opens_only_what_is_paused(pair: Pair, begun: int) -> None:
    pair.stream._enter(begun)
    pair.stream._end_pause()
    assert pair.stream.state == (OPEN if begun == PAUSED else begun)


def test_input_that_arrives_during_a_hold_is_read_when_the_last_hold_ends(pair: Pair) -> None:
    stream = pair.stream
    stream.start()
    stream.hold()
    stream.hold()
    assert stream.waits_for == NOTHING  # a hold alone costs no call: most clients wait for their answer
    pair.say(b"a")
    assert (stream.waits_for, stream.handled) == (HELD, b"")
    stream.release()
    pair.say(b"b")
    assert (stream.waits_for, stream.handled) == (HELD, b"")
    stream.release()
    assert stream.waits_for == NOTHING
    wait_in_loop(lambda: stream.handled == b"ab")


def test_answers_of_a_held_connection_leave_when_the_hold_ends(pair: Pair) -> None:
    stream = pair.stream
    stream.start()
    stream.hold()
    stream.send(b"answer")
    let_loop_run()
    assert pair.heard() == b""
    stream.release()
    wait_in_loop(lambda: pair.heard() == b"answer")


def test_unhandled_input_waits_for_the_end_of_a_hold_and_then_for_its_turn(pair: Pair) -> None:
    stream = pair.stream
    stream.start()
    stream.takes_long, stream.is_acting = True, False
    pair.say(b"a")
    assert stream.waits_for == UNHANDLED
    stream.hold()
    stream.is_acting = True
    pair.say(b"b")
    assert (stream.waits_for, stream.handled) == (UNHANDLED, b"")
    stream.takes_long = False
    stream.release()
    assert stream.waits_for == UNHANDLED
    wait_in_loop(lambda: stream.handled == b"ab")
    assert stream.waits_for == NOTHING


def test_input_for_which_an_iteration_has_no_time_is_read_in_its_turn(pair: Pair) -> None:
    stream = pair.stream
    stream.start()
    pair.iteration.backlog.input_s = 0.0
    pair.peer.send(b"a")
    stream._on_readable()
    assert (stream.waits_for, stream.handled) == (UNREAD, b"")
    wait_in_loop(lambda: stream.handled == b"a")
    assert stream.waits_for == NOTHING


def test_a_layer_that_has_more_is_asked_before_more_is_read(pair: Pair) -> None:
    stream = pair.stream
    stream.add_layer(ByteLayer())
    stream.start()
    pair.peer.send(b"abc")
    stream._on_readable()
    assert (stream.waits_for, stream.handled) == (DECODING, b"a")
    wait_in_loop(lambda: stream.handled == b"abc")
    wait_in_loop(lambda: stream.waits_for == NOTHING)


def test_decoded_input_that_takes_long_is_handled_before_the_rest_is_decoded(pair: Pair) -> None:
    stream = pair.stream
    stream.add_layer(ByteLayer())
    stream.start()
    stream.takes_long, stream.is_acting = True, False
    pair.peer.send(b"abc")
    stream._on_readable()
    let_loop_run()
    assert (stream.waits_for, stream.late) == (UNHANDLED, b"a")
    stream.is_acting = True
    wait_in_loop(lambda: stream.handled == b"abc")
    wait_in_loop(lambda: stream.waits_for == NOTHING)


def test_nothing_is_read_from_a_peer_that_does_not_take_its_answers(pair: Pair) -> None:
    stream = pair.stream
    stream.start()
    answer = bytes(8 << 20)
    stream.send(answer)
    let_loop_run()
    pair.say(b"a")
    assert (stream.waits_for, stream.handled) == (OUTPUT, b"")
    taken = 0

    def has_taken_all() -> bool:
        nonlocal taken
        taken += len(pair.heard())
        return taken == len(answer)

    wait_in_loop(has_taken_all)
    wait_in_loop(lambda: stream.handled == b"a")
    assert stream.waits_for == NOTHING


def test_a_closing_connection_sends_its_answers_and_reads_nothing(pair: Pair) -> None:
    stream = pair.stream
    stream.start()
    stream.hold()
    stream.send(b"answer")
    stream.close_when_sent()
    assert (stream.state, stream.is_reading) == (CLOSING, False)
    pair.say(b"a")
    assert pair.heard() == b""
    stream.release()
    assert not stream.is_reading
    wait_in_loop(lambda: stream.closed)
    assert (pair.heard(), pair.heard(), stream.handled) == (b"answer", b"", b"")


def test_a_connection_that_closes_in_the_backlog_handles_nothing_more(pair: Pair) -> None:
    stream = pair.stream
    stream.start()
    stream.takes_long, stream.is_acting = True, False
    pair.say(b"a")
    stream.is_acting = True
    stream.close("by the test")
    let_loop_run()
    assert (stream.state, stream.handled) == (CLOSED, b"")


OPERATIONS: dict[str, Any] = {
    "hold": lambda stream: stream.hold(),
    "release": lambda stream: stream.release() if stream._holds else None,
    "say": lambda stream: stream.on_data(b"x"),
    "read": lambda stream: stream._on_readable() if stream.is_reading else None,
    "takes long": lambda stream: setattr(stream, "takes_long", not stream.takes_long),
    "acts": lambda stream: setattr(stream, "is_acting", not stream.is_acting),
    "work": lambda stream: stream.work(),
    "no room": lambda stream: stream._stop_reading(OUTPUT),
    "read on": lambda stream: stream._read_on(),
    "pause": lambda stream: stream._enter(PAUSED),
    "end pause": lambda stream: stream._end_pause(),
    "loop": lambda stream: let_loop_run(),
}


@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("seed", range(20))
def test_the_invariants_hold_after_every_step(pair: Pair, seed: int, layers: int) -> None:
    draw = random.Random(seed)
    stream = pair.stream
    for _ in range(layers):
        stream.add_layer(ByteLayer())
    stream.start()
    said = 0
    for step in draw.choices(list(OPERATIONS), k=200):
        if step == "read":
            pair.peer.send(b"y")
        if step in ("read", "say"):
            said += 1
        OPERATIONS[step](stream)
        assert stream._watchers._reader.active == stream.is_reading, step
        assert stream.waits_for != NOTHING or stream._undecoded is None, step
    # Whatever the order was: when nothing holds it, all input is handled.
    stream.takes_long, stream.is_acting = False, True
    while stream._holds:
        stream.release()
    stream._read_on()
    wait_in_loop(lambda: len(stream.handled) == said, "all input")
    wait_in_loop(lambda: stream.waits_for == NOTHING, "the reader")
    stream.hold()
    stream.close_when_sent()
    assert stream._watchers._reader.active == stream.is_reading
