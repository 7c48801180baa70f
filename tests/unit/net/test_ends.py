"""Clients that leave at once: each end takes little, but a thousand of them must not keep the others waiting."""

from __future__ import annotations

import socket
import time

import gevent
import pytest

from nsqd_py.net import transport
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.transport import Stream
from nsqd_py.runtime.logs.daemon_log import Log

pytestmark = pytest.mark.skipif(
    not transport.__file__.endswith(".py"), reason="no class is derived from a compiled one"
)

COUNT = 200
END_S = 0.001


class Leaving(Stream):
    """A connection whose end takes a millisecond."""

    ended: list[str]

    def on_data(self, data: bytes) -> None:
        self.is_quick = True  # as after a short command: the next input is read without asking for time

    def on_close(self, reason: str) -> None:
        end_s = time.perf_counter() + END_S
        while time.perf_counter() < end_s:
            pass
        self.ended.append(reason)


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_others_are_served_between_them(is_reset: bool) -> None:
    hub, log = gevent.get_hub(), Log("[test] ")
    iteration = LoopIteration(hub, log)
    ended = []
    theirs = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(COUNT):
            client = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
            leaving = Leaving(accepted, "127.0.0.1:1", hub.loop, iteration, log)
            leaving.ended = ended
            leaving.start()
            client.send(b"x")
            theirs.append(client)
    gevent.sleep(0.01)
    served = []

    def neighbour() -> None:
        while len(ended) < COUNT:
            served.append(len(ended))
            gevent.sleep(0)
        served.append(COUNT)

    for client in theirs:
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
    with gevent.Timeout(40):
        gevent.spawn(neighbour).join()
    most = max(after - before for before, after in zip(served, served[1:], strict=False))
    assert most <= 20, f"{most} of {COUNT} ended before the others had a turn"
