"""Questions to nsqds that must be answered in time."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from nsq_spark.source.nsqds import _all_within


class HeldSocket:
    """A socket; a thread that shuts it down stops in the middle of that."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.is_used = False

    def shutdown(self, how: int) -> None:
        assert how == socket.SHUT_RDWR
        self.is_used = True
        self.begun.set()
        self.gate.wait(40)
        self.is_used = False


def test_a_socket_that_is_late_is_not_closed_while_the_timer_shuts_it_down() -> None:
    """Else the next socket with its descriptor would be shut down."""
    sock: Any = HeldSocket()
    used_at_end: list[bool] = []

    def ask() -> None:
        with pytest.raises(TimeoutError), _all_within(0.0, sock):
            assert sock.begun.wait(40)
        used_at_end.append(sock.is_used)

    asking = threading.Thread(target=ask)
    asking.start()
    assert sock.begun.wait(40)
    asking.join(0.2)  # one that does not wait for the timer has ended by then, and fails below
    sock.gate.set()
    asking.join(40)
    assert used_at_end == [False]
