"""The connection to another nsqd of the group ends when it is silent, and not because it is old."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from nsqd_py.server.options import read_options
from nsqd_py.standby.link import Link
from tests.support.hostile_primary import frame

SILENCE_S = 0.6
PERIOD_S = 0.2


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def link_to(listener: socket.socket) -> Link:
    return Link(read_options([f"--standby-of=127.0.0.1:{listener.getsockname()[1]}"]), silence_s=SILENCE_S)


def test_a_link_that_gets_something_now_and_then_stays(listener: socket.socket) -> None:
    """A standby that waited for 30 s in all, in many pieces, left its primary and came back."""
    link = link_to(listener)
    peer, _ = listener.accept()
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(PERIOD_S):
            peer.sendall(frame(b"x"))

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(10):
            assert next(link.frames)[1] == b"x"
    finally:
        ended.set()
        sender.join()
        peer.close()
        link.sock.close()


def test_a_link_that_is_silent_ends(listener: socket.socket) -> None:
    link = link_to(listener)
    with pytest.raises(TimeoutError):
        next(link.frames)
    link.sock.close()
