"""Hundreds of connections whose input takes long: those with little to do are served in between."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import gevent
import pytest

from nsqd_py.net.layers import Layer
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.transport import Stream
from nsqd_py.runtime.logs import Log

HEAVY = 200
WORK_S = 0.001
# 5 ms of an iteration, and what begins just before its time is over; without turns it is 200.
MOST_BETWEEN = 12


class Recorder(Stream):
    """Takes a millisecond for each input that is not of four bytes."""

    __slots__ = ("served",)

    served: list[str]

    def on_data(self, data: bytes) -> None:
        if len(data) == 4:
            self.is_quick = self.peer == "quick"
            self._serve()
        elif self._iteration.backlog.has_time():
            self.act()
        else:
            self._fall_behind()

    def act(self) -> None:
        until_s = time.perf_counter() + WORK_S
        while time.perf_counter() < until_s:
            pass
        self._catch_up()
        self._serve()

    def _serve(self) -> None:
        self.served.append(self.peer)
        self.send(b"done")


class Costly:
    """A layer that decodes each byte to a step of a millisecond: a handshake, or a bomb."""

    is_secure = False
    is_open = True
    has_more = False

    def decode(self, received: bytes) -> bytes:
        until_s = time.perf_counter() + WORK_S
        while time.perf_counter() < until_s:
            pass
        self.has_more = bool(received)
        return b"xx"

    def encode(self, data: bytes) -> bytes:
        return data

    def take_output(self) -> bytes:
        return b""

    end = take_output


class Scene:
    def __init__(self, stack: ExitStack) -> None:
        self.served: list[str] = []
        self._stack = stack
        self._hub = gevent.get_hub()
        self._iteration = LoopIteration(self._hub, Log())
        self._streams: list[Recorder] = []

    def connect(self, name: str, layer: Layer | None = None) -> socket.socket:
        mine, its = socket.socketpair()
        stream = Recorder(its, name, self._hub.loop, self._iteration, Log())
        stream.served = self.served
        if layer is not None:
            stream.add_layer(layer)
        stream.start()
        self._streams.append(stream)
        self._stack.callback(stream.close, "over")
        return self._stack.enter_context(mine)

    def run(self, done: int) -> None:
        with gevent.Timeout(40):
            while len([name for name in self.served if name == "heavy"]) < done:
                gevent.sleep(0.0001)

    def most_between(self, name: str) -> int:
        """The largest number of heavy inputs between two inputs of this connection."""
        runs = "".join("." if each == name else "x" for each in self.served if each in (name, "heavy")).split(".")
        return max(map(len, runs[1:]))


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def ping_until_over(sock: socket.socket, scene: Scene, over: int) -> None:
    """A client that sends again when it has its answer."""
    sock.setblocking(False)
    sock.send(b"ping")
    while len(scene.served) < over:
        try:
            sock.recv(100)
            sock.send(b"ping")
        except BlockingIOError:
            pass
        gevent.sleep(0.00001)


@pytest.mark.parametrize("neighbour", ["quick", "light"])
@pytest.mark.parametrize("layer", [None, Costly])
def test_a_neighbour_is_served_in_every_iteration(scene: Scene, neighbour: str, layer: Any) -> None:
    sock = scene.connect(neighbour)
    pinging = gevent.spawn(ping_until_over, sock, scene, 10**9)
    gevent.sleep(0.01)
    clients = [scene.connect("heavy", layer and layer()) for _ in range(HEAVY)]
    for client in clients:
        client.send(b"x" * 5000 if layer is None else b"xx")
    scene.run(HEAVY * (1 if layer is None else 2))
    pinging.kill()
    assert scene.most_between(neighbour) <= MOST_BETWEEN
