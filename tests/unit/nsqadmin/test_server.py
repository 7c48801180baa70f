"""Connections of nsqadmin: how long they may keep it waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ssl import SSLContext
from typing import Any
from unittest import mock

import gevent
import pytest
from gevent import socket

from nsqadmin_py.web import server as server_module
from nsqadmin_py.web.server import HttpServer
from nsqd_py.net.addresses import split_address
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from nsqd_py.runtime.pacing import Turns
from nsqd_py.settings.types import OPENSSL_DEFAULT
from tests.support.certificates import Certificates

LIMIT_S = 0.3


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Reads no body, or all of it."""
    body = environ["wsgi.input"].read() if environ["PATH_INFO"] == "/read" else b""
    start_response("200 OK", [("Content-Length", "5")])
    return [b"%05d" % len(body)]


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    with mock.patch.multiple(server_module, BODY_S=LIMIT_S, HANDSHAKE_S=LIMIT_S):
        yield


@contextmanager
def served(tls: SSLContext | None = None) -> Iterator[int]:
    """The port of a server."""
    server = HttpServer(app, "127.0.0.1:0", 100, tls, Log(level=FATAL), Turns(gevent.get_hub().loop))
    server.start()
    host = split_address(server.address)
    assert host is not None
    yield int(host[1])
    server.close()


@pytest.fixture
def port() -> Iterator[int]:
    with served() as port:
        yield port


BODIES = ["Content-Length: 1000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nfffff\r\n"]


@pytest.mark.parametrize("path", ["/read", "/skipped"])
@pytest.mark.parametrize("head", BODIES)
def test_a_body_that_dribbles_ends_its_connection(port: int, path: str, head: str) -> None:
    dribble(port, f"POST {path} HTTP/1.1\r\nHost: x\r\n{head}".encode())


def dribble(port: int, head: bytes) -> None:
    """Send a byte at a time until the server ends the connection."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.settimeout(0.05)
    sock.sendall(head)
    with gevent.Timeout(40), pytest.raises(ConnectionError):
        while True:
            sock.sendall(b"\x01")
            try:
                if not sock.recv(1000):
                    raise ConnectionError
            except TimeoutError:
                continue


def test_an_answer_says_that_the_connection_ends(port: int) -> None:
    """As Go's HTTP server does, in HTTP/1.1."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    first, last = sock.makefile("rb").read().split(b"00000")[:2]
    assert b"\r\nConnection:" not in first
    assert last.count(b"\r\nConnection: close\r\n") == 1


def test_a_long_head_is_refused(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 40) as sock:
        sock.sendall(b"GET /ping HTTP/1.1\r\n" + b"X: %b\r\n" % (b"x" * 13_000) * 6 + b"\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_chunks_of_one_byte_stop_nobody(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "BODY_S", 30.0)
    turns = 0

    def count() -> None:
        nonlocal turns
        while True:
            gevent.sleep(1e-6)  # a timer: it needs an iteration of the loop, as a socket does
            turns += 1

    def send() -> None:
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(b"POST /read HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        sock.sendall(b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n")
        assert b"200000" in sock.recv(1000)

    counter = gevent.spawn(count)
    gevent.spawn(send).get(timeout=40)
    counter.kill()
    assert turns > 100


def test_a_tls_handshake_that_dribbles_ends_its_connection(certificates: Certificates) -> None:
    files = str(certificates.server_certificate), str(certificates.server_key)
    tls = server_module.server_tls(*files, OPENSSL_DEFAULT)
    with served(tls) as port:
        dribble(port, b"\x16\x03\x01\x40\x00")
