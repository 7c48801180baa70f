"""Limits on connections and on the time that clients keep a daemon waiting. Time is an argument; the loop is a fake."""

from __future__ import annotations

from typing import Any

import gevent
import pytest

from nsqd_py.net.limits import IDLE, WRITE, Connections, TimeLimits, host_of
from nsqd_py.runtime.logs.daemon_log import FATAL, Log

FIRST_DESCRIPTOR = 3


class FakeLoop:
    """Its timers are started by nobody; a test sweeps itself."""

    def timer(self, *_times: float) -> FakeLoop:
        return self

    def start(self, *_arguments: Any) -> None: ...

    def close(self) -> None: ...


class Visitor:
    """A connection that is overdue from `due_s` on, for `reason`."""

    def __init__(self, peer: str, due_s: float = 1e9, reason: str = IDLE) -> None:
        self.peer = peer
        self.owner: Any = None
        self.ended = ""
        self._due_s = due_s
        self._reason = reason

    def overdue(self, now_s: float, limits: TimeLimits) -> str:
        return self._reason if now_s >= self._due_s else ""

    def time_out(self, reason: str) -> None:
        self.close(reason)

    def close(self, reason: str) -> None:
        self.ended = reason
        self.owner.remove(self)


def crowd(most: int = 0, most_per_host: int = 0) -> Connections:
    connections = Connections(most, most_per_host, TimeLimits(), Log(level=FATAL), FakeLoop())
    connections.start()
    return connections


def enter(connections: Connections, peer: str) -> Visitor | None:
    """The visitor, if it is let in."""
    if connections.refuses(peer, FIRST_DESCRIPTOR):
        return None
    visitor = Visitor(peer)
    connections.add(visitor)
    return visitor


# ---- how many


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.1:4150", "10.0.0.1"),
        ("[::ffff:10.0.0.1]:4150", "10.0.0.1"),
        ("[2001:db8::1]:4150", "2001:db8::1"),
        ("@", ""),
    ],
)
def test_the_address_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host


# ---- time


def test_a_sweep_ends_who_is_overdue_and_pauses_for_others() -> None:
    connections = crowd()
    *patient, slow = [Visitor(f"10.0.0.1:{port}") for port in range(50_000)] + [
        Visitor("10.0.0.2:1", due_s=5, reason=WRITE)
    ]
    for visitor in (*patient, slow):
        connections.add(visitor)
    connections.sweep(4.9)
    assert len(connections) == 50_001
    other = gevent.spawn(lambda: slow.ended)
    connections.sweep(5.0)
    assert other.value == "", "it ran before the end of the sweep"
    assert ({visitor.ended for visitor in patient}, slow.ended) == ({""}, WRITE)
    assert len(connections) == 50_000
    assert connections.timed_out == {WRITE: 1}


@pytest.mark.parametrize(
    ("limits", "sweep_s"),
    [
        (TimeLimits(), 1.0),
        (TimeLimits(handshake_s=10, idle_s=600), 1.0),
        (TimeLimits(handshake_s=10, write_s=0.4), 0.1),
        (TimeLimits(head_s=0.001), 0.05),
    ],
)
def test_sweeps_come_often_enough_for_the_shortest_limit(limits: TimeLimits, sweep_s: float) -> None:
    assert limits.sweep_s == sweep_s
