"""Requests that a greenlet handles."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import gevent

from nsqd_py.net.http.answers import plain
from nsqd_py.net.http.connection import HttpConnection
from nsqd_py.net.http.router import Access, Route, Router
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.pacing import TURNS_S
from nsqlookupd_py.http import LookupApi
from nsqlookupd_py.registry import Registry

REQUEST = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"


class Served:
    """Connections to one route, whose handler notes each request, and then works for `work_s`."""

    def __init__(
        self, handle: Callable[[Any], Any] | None = None, *, work_s: float = 0.0, is_hot: bool = False
    ) -> None:
        self.count = 0
        self._work_s = work_s
        hub, self._log = gevent.get_hub(), Log("[test] ")
        self._loop = hub.loop
        self.iteration = LoopIteration(hub, self._log)
        self._api = LookupApi(Registry(0, 0), lambda: 0, self._log, None, requires_tls=False)  # type: ignore[arg-type]
        route = Route("GET", "/x", handle or self._handle, Access.STATISTICS, is_hot=is_hot)
        self._router: Any = Router([route])
        self._theirs: list[socket.socket] = []

    def _handle(self, request: Any) -> Any:
        self.count += 1
        end_s = time.perf_counter() + self._work_s
        while time.perf_counter() < end_s:
            pass
        return plain(200, "OK")

    def connect(self, peer: str = "192.0.2.1:1") -> Any:
        ours, theirs = socket.socketpair()
        self._theirs.append(theirs)
        return HttpConnection(ours, peer, self._loop, self.iteration, self._log, self._api, self._router)

    def wait_for(self, is_over: Callable[[], bool]) -> None:
        with gevent.Timeout(40):
            while not is_over():
                gevent.sleep(0)
        for theirs in self._theirs:
            theirs.close()


def test_requests_of_many_connections_take_turns() -> None:
    """Timers and sockets are served after each, once the time of an iteration is over."""
    served = Served(work_s=TURNS_S)
    for number in range(30):
        served.connect(f"192.0.2.1:{number + 1}").on_data(REQUEST)
    by_then = []
    gevent.spawn_later(0.0, lambda: by_then.append(served.count))
    served.wait_for(lambda: served.count == 30)
    assert by_then[0] <= 3


def test_pipelined_requests_are_handled_in_slices() -> None:
    served = Served(is_hot=True)
    served.iteration.backlog.slice_s = 0.0
    served.connect().on_data(REQUEST * 1000)
    assert 0 < served.count < 100
    served.wait_for(lambda: served.count == 1000)


def test_a_bug_in_the_answer_to_a_request_ends_its_connection() -> None:
    served = Served(lambda _: None)
    connection = served.connect()
    connection.on_data(REQUEST * 2)
    served.wait_for(lambda: connection.closed)
