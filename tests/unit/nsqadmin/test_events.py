"""Event streams: several views in one, and over a socket what becomes of readers who do not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import gevent
import orjson
import pytest
from gevent import socket
from werkzeug.wrappers import Request

from nsqadmin_py.cluster.metrics import View
from nsqadmin_py.permissions import Scope
from nsqadmin_py.refusals import NotThere, RequestRefused
from nsqadmin_py.web import server as server_module
from nsqadmin_py.web.events import MOST_VIEWS, Events
from nsqadmin_py.web.server import HttpServer
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.pacing import Turns

TEXT = "x" * (1 << 20)
TIMEOUT_S = 0.4
DEADLINE_S = 40.0
# Of a megabyte each, so many fit into the buffers of the kernel at both ends.
MOST_BUFFERED = 12


def events_of(views: Any) -> Events:
    access: Any = SimpleNamespace(scope=lambda request: Scope(), is_identified=lambda request: False)
    return Events(views, access, Turns(gevent.get_hub().loop))


class GrowingViews:
    """A megabyte, another one each time that it is asked for."""

    def __init__(self) -> None:
        self.times_read = 0

    def of(self, scope: Scope) -> GrowingViews:
        return self

    def read(self, query: Mapping[str, str]) -> View:
        self.times_read += 1
        return View({"number": self.times_read, "text": TEXT})


class Stream:
    """A server with events, and rounds as the test makes them."""

    def __init__(self) -> None:
        self.views = GrowingViews()
        self.events = events_of(self.views)
        self.server = HttpServer(self._app, "127.0.0.1:0", 10, None, Log(), Turns(gevent.get_hub().loop))
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


# ---- several views


class NamedViews:
    def __init__(self) -> None:
        self.heads = {"a": 1, "b": 2}

    def of(self, scope: Scope) -> NamedViews:
        return self

    def read(self, query: Mapping[str, str]) -> View:
        if query["topic"] not in self.heads:
            raise NotThere("TOPIC_NOT_FOUND")
        return View({"depth": self.heads[query["topic"]]})


def test_one_stream_has_several_views() -> None:
    views = NamedViews()
    events = events_of(views)
    request = Request({"QUERY_STRING": "of=view%3Dtopic%26topic%3Da&of=topic%3Dc", "REQUEST_METHOD": "GET"})
    stream = iter(events.handle(request).response)
    assert next(stream) == b"retry: 2000\n\n"  # type: ignore[comparison-overlap]
    assert read(stream) == (
        "change",
        {"of": "view=topic&topic=a", "tick": 0, "full": True, "rows": {}, "keys": [], "head": {"depth": 1}},
    )
    assert read(stream) == ("gone", {"of": "topic=c", "message": "TOPIC_NOT_FOUND"})
    views.heads = {"c": 3}
    events.publish(1)
    assert read(stream) == ("gone", {"of": "view=topic&topic=a", "message": "TOPIC_NOT_FOUND"})
    assert read(stream)[1]["head"] == {"depth": 3}


def read(stream: Iterator[Any]) -> tuple[str, dict[str, Any]]:
    lines = next(stream).decode().splitlines()
    document = orjson.loads(lines[1].removeprefix("data: "))
    document.pop("time", None)
    return lines[0].removeprefix("event: "), document


def test_too_many_views_are_refused() -> None:
    query = "&".join(f"of=topic%3Da%26n%3D{number}" for number in range(MOST_VIEWS + 1))
    with pytest.raises(RequestRefused, match="TOO_MANY_VIEWS"):
        events_of(NamedViews()).handle(Request({"QUERY_STRING": query, "REQUEST_METHOD": "GET"}))
