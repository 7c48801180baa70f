"""The names of nsqlookupds, and responses that are not understood."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.server import StreamServer

from nsqd_py.lookup.connection import BadResponse, LookupConnection
from nsqd_py.lookup.host import LookupHost, parse_address, resolve
from tests.unit.fakes import World

HOST = "127.0.0.1"


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def endpoint_of(server: StreamServer) -> Any:
    return parse_address(f"{HOST}:{server.server_port}").endpoint


# --- names


def test_a_resolution_that_fails_keeps_what_is_there() -> None:
    found: list[Any] = []

    def look_up(*_: Any, **__: Any) -> list[Any]:
        if not found:
            raise socket.gaierror(-2, "Name or service not known")
        return found

    log: Any = World().log
    progress: list[int] = []
    address = parse_address("lookup:4160")
    host = LookupHost(address, partial(resolve, look_up=look_up), log, lambda: 0.0, lambda _: False, lambda: progress.append(1))
    assert not host.resolve()
    assert (host.was_resolved, host.selection.all) == (True, ())
    found.append((socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOST, 4160)))
    assert host.resolve()
    found.clear()
    assert not host.resolve()
    assert [str(endpoint) for endpoint in host.selection.in_use] == [f"{HOST}:4160"]
    assert len(progress) == 3
    assert log.errors == ["LOOKUP(lookup:4160): failed to resolve - Name or service not known"] * 2


# --- a connection


@pytest.fixture
def make_server() -> Iterator[Callable[[Callable[[Any], None]], StreamServer]]:
    """`make_server(serve)` calls `serve(sock)` for each connection, and closes it then."""
    servers: list[StreamServer] = []

    def make(serve: Callable[[Any], None]) -> StreamServer:
        server = StreamServer((HOST, 0), lambda sock, _: serve(sock))
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.stop(0)


MakeServer = Callable[[Callable[[Any], None]], StreamServer]


@pytest.mark.parametrize("size", [101, -1])
def test_a_response_that_is_too_long_is_not_read(make_server: MakeServer, size: int) -> None:
    server = make_server(lambda sock: sock.sendall(size.to_bytes(4, "big", signed=True)))
    connection = LookupConnection(endpoint_of(server), 100)
    with pytest.raises(BadResponse, match=f"size \\({size}\\)"):
        connection.read()
    connection.close()


def test_what_nothing_asked_for_is_an_error(make_server: MakeServer) -> None:
    def serve(sock: Any) -> None:
        sock.sendall(sized(b"OK"))
        gevent.sleep(10)

    connection = LookupConnection(endpoint_of(make_server(serve)), 100)
    with pytest.raises(BadResponse, match="nothing asked for"):
        connection.wait(Event(), 60)
    connection.close()
