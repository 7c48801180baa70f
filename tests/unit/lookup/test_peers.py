"""Peers in one process with small nsqlookupds: names, families, silence, and what is not understood."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.server import StreamServer

from nsqd_py.lookup.connection import BadResponse, LookupConnection, parse_peer_info
from nsqd_py.lookup.host import LookupHost, parse_address, resolve
from nsqd_py.lookup.peers import LookupPeers
from nsqd_py.options import NSQD
from tests.unit.fakes import FakeLog, World, start_broker

HOST = "127.0.0.1"


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def endpoint_of(server: StreamServer) -> Any:
    return parse_address(f"{HOST}:{server.server_port}").endpoint


def wait_here(condition: Callable[[], Any]) -> None:
    """Lets greenlets run until it is true."""
    with gevent.Timeout(40, AssertionError("waited 40 s")):
        while not condition():
            gevent.sleep(0.005)


class SmallLookupd:
    """Answers IDENTIFY and says OK to the rest."""

    def __init__(self, identity: bytes = b'{"broadcast_address":"h"}') -> None:
        self.identity = identity
        self.lines: list[bytes] = []
        self.connections = 0
        self.server = StreamServer((HOST, 0), self._serve)
        self.server.start()

    @property
    def port(self) -> int:
        port: int = self.server.server_port
        return port

    def _serve(self, sock: Any, _: object) -> None:
        self.connections += 1
        source = sock.makefile("rb")
        assert source.read(4) == b"  V1"
        assert source.readline() == b"IDENTIFY\n"
        source.read(int.from_bytes(source.read(4), "big"))
        sock.sendall(sized(self.identity))
        for line in source:
            self.lines.append(line)
            sock.sendall(sized(b"OK"))


@pytest.fixture
def lookupd() -> Iterator[SmallLookupd]:
    fake = SmallLookupd()
    yield fake
    fake.server.stop(0)


class Names:
    """A resolver's answers, by host; a host that is missing is unknown."""

    def __init__(self, **ips: list[str]) -> None:
        self.ips = ips
        self.count = 0

    def look_up(self, host: str, port: int, type: int) -> list[Any]:
        self.count += 1
        if host not in self.ips:
            raise socket.gaierror(-2, "Name or service not known")
        return [
            (socket.AF_INET6, type, 6, "", (ip, port, 0, 0)) if ":" in ip else (socket.AF_INET, type, 6, "", (ip, port))
            for ip in self.ips[host]
        ]


@pytest.fixture
def make_peers(tmp_path: Path) -> Iterator[Callable[..., LookupPeers]]:
    """`make_peers(names, *addresses)` runs those of a broker with the topic `orders`."""
    running: list[LookupPeers] = []

    def make(names: Names, *addresses: str) -> LookupPeers:
        broker = start_broker(World(), tmp_path)
        broker.get_topic("orders")
        peers = LookupPeers(broker, NSQD.defaults(), broker.log, resolve=partial(resolve, look_up=names.look_up))
        broker.lookups = peers
        running.append(peers)
        peers.set_addresses(addresses)
        peers.start()
        return peers

    yield make
    for peers in running:
        peers.close()


MakePeers = Callable[..., LookupPeers]

# --- names


def test_a_resolution_that_fails_keeps_what_is_there(lookupd: SmallLookupd) -> None:
    names = Names()
    log: Any = World().log
    progress: list[int] = []
    address = parse_address("lookup:4160")
    host = LookupHost(
        address, partial(resolve, look_up=names.look_up), log, lambda: 0.0, lambda _: False, lambda: progress.append(1)
    )
    assert not host.resolve()
    assert (host.was_resolved, host.selection.all) == (True, ())
    names.ips["lookup"] = [HOST]
    assert host.resolve()
    del names.ips["lookup"]
    assert not host.resolve()
    assert [str(endpoint) for endpoint in host.selection.in_use] == [f"{HOST}:4160"]
    assert len(progress) == 3
    assert log.errors == ["LOOKUP(lookup:4160): failed to resolve - Name or service not known"] * 2


def test_after_a_defect_it_registers_again(make_peers: MakePeers, lookupd: SmallLookupd, monkeypatch: pytest.MonkeyPatch) -> None:
    defects = [KeyError("a bug"), KeyError("another one")]

    def parse(response: bytes) -> dict[str, Any]:
        if defects:
            raise defects.pop()
        return parse_peer_info(response)

    monkeypatch.setattr("nsqd_py.lookup.peer.parse_peer_info", parse)
    logged: list[str] = []
    monkeypatch.setattr(FakeLog, "exception", lambda _, text, *arguments: logged.append(text % arguments))
    make_peers(Names(lookup=[HOST]), f"lookup:{lookupd.port}")
    wait_here(lambda: lookupd.lines == [b"REGISTER orders\n"])
    assert len(logged) == 2


# --- failures


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
