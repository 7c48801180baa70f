"""The HTTP client, and the answers of nsqlookupds."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any
from unittest.mock import Mock

import gevent
import pytest
from gevent.event import Event

from nsqd_py.cluster.upstream import Upstream
from nsqd_py.lookup.host import Endpoint
from nsqd_py.lookup.peer import ChannelQuery, lasting_channels
from nsqd_py.net.http import BadStatus, HttpClientError, Unreachable
from nsqd_py.net.http.client import HttpClient
from tests.support.raw_server import RawServer
from tests.unit.fakes import counted_turns

HOST = "127.0.0.1"


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


MakeServer = Callable[..., RawServer]


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    with ExitStack() as stack:
        yield lambda response, closes=True: stack.enter_context(closing(RawServer(response, closes)))


def resolve(host: str, port: int) -> list[Endpoint]:
    """Knows no name."""
    if host == HOST:
        return [Endpoint(socket.AF_INET, (host, port))]
    raise socket.gaierror(-2, "Name or service not known")


def client(**changes: Any) -> HttpClient:
    return HttpClient(**({"connect_timeout_s": 5.0, "request_timeout_s": 5.0, "resolve": resolve} | changes))


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (answer(b'{"message":"NO"}', "404 Not Found"), 'got response 404 Not Found "{"message":"NO"}"'),
        (answer(b"no json"), "JSON|unexpected|invalid"),
        (answer(b'"' + b"x" * 100 + b'"'), "longer than 100 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", "cut off"),
        (b"SSH-2.0\r\n", "SSH"),
        (b"", "without response"),
    ],
)
def test_an_answer_that_cannot_be_used(make_server: MakeServer, response: bytes, reason: str) -> None:
    with pytest.raises(HttpClientError, match=reason):
        client(max_answer_bytes=100).get_json(HOST, make_server(response).port, "/")


@pytest.mark.parametrize("host", ["<b c>", "\0"])
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(HttpClientError, match="is not a host name"):
        client().get_json(host, 1, "/")


def test_the_date_of_an_answer_is_kept(make_server: MakeServer) -> None:
    server = make_server(b"HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 2\r\n\r\n{}")
    upstream = Upstream(client())
    with upstream.answer() as kept:
        assert upstream.get_bytes(kept, f"{HOST}:{server.port}", "/stats") == b"{}"
        assert kept.date == "today"


@pytest.mark.parametrize(
    "response", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1"]
)
def test_one_deadline_for_the_whole_answer(make_server: MakeServer, response: bytes) -> None:
    server = make_server(response, closes=False)
    with pytest.raises(HttpClientError, match=r"no answer within 0\.05s"):
        client(request_timeout_s=0.05).get_json(HOST, server.port, "/")


def test_a_resolver_that_hangs_is_a_connection_that_takes_too_long() -> None:
    with pytest.raises(Unreachable, match=r"no connection within 0\.05s"):
        client(connect_timeout_s=0.05, resolve=lambda *_: Event().wait()).get_json("h", 1, "/")


def test_a_timeout_of_the_caller_is_left_to_it(make_server: MakeServer) -> None:
    server = make_server(b"", closes=False)
    with pytest.raises(gevent.Timeout), gevent.Timeout(0.05):
        client().get_json(HOST, server.port, "/")


# --- channels


@pytest.mark.parametrize("data", [None, [], "channels", {}, {"channels": None}, {"channels": {}}])
def test_what_is_no_list_of_channels(data: object) -> None:
    with pytest.raises(HttpClientError, match="no list"):
        lasting_channels(data)


def test_where_the_broadcast_address_leads_nowhere_the_ip_is_asked(make_server: MakeServer) -> None:
    server = make_server(answer(b'{"channels":["a"]}'))
    noted = Mock(side_effect=resolve)
    query = ChannelQuery(client(resolve=noted), "unknown.local", HOST, server.port, "")
    assert query.address == ("unknown.local", server.port)
    assert [query.channels("t"), query.channels("t")] == [["a"], ["a"]]
    assert [asked.args[0] for asked in noted.mock_calls] == [
        "unknown.local",
        HOST,
        HOST,
    ]  # what works is asked first from then on


def test_a_server_that_sends_without_end_stops_nobody(make_server: MakeServer) -> None:
    """Chunks of one byte: reading 30 MB of them takes seconds, in which others run, and the deadline is kept."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server = make_server(head + b"1\r\nx\r\n" * 5_000_000)
    with counted_turns() as turns, pytest.raises(HttpClientError, match="no answer within"):
        client(request_timeout_s=0.3).get_json(HOST, server.port, "/")
    assert len(turns) > 20


def test_of_an_error_only_the_beginning_is_read(make_server: MakeServer) -> None:
    server = make_server(answer(b"x" * 5_000_000, "500 No"))
    with pytest.raises(BadStatus) as caught:
        client().get_json(HOST, server.port, "/")
    assert caught.value.body == b"x" * 65536


@pytest.mark.parametrize("value", [b"[]", b'{"":0}', b"0"])
def test_what_takes_far_more_memory_than_bytes(make_server: MakeServer, value: bytes) -> None:
    body = b"[" + b",".join([value] * 1_000_001) + b"]"
    with pytest.raises(HttpClientError, match="more than 1000000 values"):
        client().get_json(HOST, make_server(answer(body)).port, "/")


def test_a_list_of_too_many_channels() -> None:
    with pytest.raises(HttpClientError, match="10001 channels, but at most 10000"):
        lasting_channels({"channels": ["c"] * 10_001})
