"""Event streams over a socket: what becomes of readers who do not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gevent
import pytest
from gevent import socket
from werkzeug.wrappers import Request

from nsqadmin_py.cluster.views import View
from nsqadmin_py.web import server as server_module
from nsqadmin_py.web.events import Events
from nsqadmin_py.web.server import HttpServer
from nsqd_py.runtime.logs import Log

TEXT = "x" * (1 << 20)
TIMEOUT_S = 0.4
DEADLINE_S = 10.0
# Of a megabyte each, so many fit into the buffers of the kernel at both ends.
MOST_BUFFERED = 12


class GrowingViews:
    """A megabyte, another one each time that it is asked for."""

    def __init__(self) -> None:
        self.times_read = 0

    def read(self, query: Mapping[str, str]) -> View:
        self.times_read += 1
        return View({"number": self.times_read, "text": TEXT})


class Stream:
    """A server with events, and rounds as the test makes them."""

    def __init__(self) -> None:
        self.views = GrowingViews()
        untyped: Any = self.views
        self.events = Events(untyped)
        self.server = HttpServer(self._app, "127.0.0.1:0", 10, None, Log())
        self.rounds = 0

    def _app(self, environ: dict[str, Any], start_response: Any) -> Any:
        return self.events.handle(Request(environ))(environ, start_response)

    def connect(self) -> Any:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = self.server.address.rpartition(":")
        client.connect((host, int(port)))
        client.sendall(b"GET /api/v2/events?view=x HTTP/1.1\r\nHost: x\r\n\r\n")
        return client

    def round(self) -> None:
        self.rounds += 1
        self.events.publish(self.rounds)
        gevent.sleep(0.005)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    monkeypatch.setattr(server_module, "SOCKET_TIMEOUT_S", TIMEOUT_S)
    stream = Stream()
    stream.server.start()
    yield stream
    stream.events.close()
    stream.server.close()


def test_who_reads_nothing_is_closed_and_nothing_piles_up_for_it(stream: Stream) -> None:
    with stream.connect() as client, gevent.Timeout(DEADLINE_S):
        while not stream.events.readers:
            gevent.sleep(0.005)
        while stream.events.readers:
            stream.round()
        assert stream.views.times_read < MOST_BUFFERED < stream.rounds
        received = 0
        while data := client.recv(1 << 20):
            received += len(data)
            assert b"event: bye" not in data
        assert received < MOST_BUFFERED << 20
