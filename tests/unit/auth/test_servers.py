"""Requests to auth servers, and failures of some of them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any
from unittest.mock import Mock

import gevent
import pytest

from nsqd_py.auth.servers import AuthQuestion, AuthServers, NoAuthorization, auth_url, authorization
from nsqd_py.lookup.host import resolve
from nsqd_py.net.http import Url
from nsqd_py.net.http.client import HttpClient
from tests.support.auth_server import HOST, AuthServer, answer_of
from tests.support.certificates import Certificates
from tests.unit.fakes import counted_turns

QUESTION = AuthQuestion(b"open sesame&=?\xff", "192.0.2.1", True, "name")


MakeServer = Callable[..., AuthServer]


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    with ExitStack() as stack:
        yield lambda *args: stack.enter_context(closing(AuthServer(*args)))


@pytest.fixture
def server(make_server: MakeServer) -> AuthServer:
    return make_server()


def servers(
    *addresses: str, method: str = "get", first: int = 0, tls: Callable[[], Any] = pytest.fail
) -> AuthServers:
    client = HttpClient(2.0, 2.0, resolve)
    return AuthServers(addresses, method, client, tls, lambda count: first)


def ask(asked: AuthServers) -> Any:
    """As from a greenlet of a client; the server runs in a thread."""
    return gevent.spawn(asked.ask, QUESTION).get()


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port = sock.getsockname()[1]
        return port


# --- addresses


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("h:1", Url(False, "h", 1, "/auth")),
        ("h", Url(False, "h", 80, "/auth")),
        ("[::1]:1", Url(False, "::1", 1, "/auth")),
        ("http://h", Url(False, "h", 80, "/")),
        ("https://h/a%20b?c=d", Url(True, "h", 443, "/a%20b?c=d")),
        ("http://u:p%40@h:81/x y", Url(False, "h", 81, "/x%20y", "u:p@")),
    ],
)
def test_an_address_is_a_host_or_a_url(address: str, url: Url) -> None:
    assert auth_url(address) == url


@pytest.mark.parametrize(
    "address", ["", ":1", "h:port", "h:70000", "h:0", "ftp://h", "http://", "http://[::1"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError):
        auth_url(address)


# --- questions

VALUES = {
    "remote_ip": ["192.0.2.1"],
    "tls": ["true"],
    "common_name": ["name"],
    "secret": ["open sesame&=?\ufffd"],
}


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_url_keeps_its_path_query_and_login(server: AuthServer, method: str) -> None:
    ask(servers(f"http://user:pass@{server.address}/nsq/auth?a=b", method=method))
    (asked,) = server.asked
    assert asked.path == "/nsq/auth"
    assert asked.values == ({"a": ["b"]} if method == "get" else {}) | VALUES
    assert asked.headers["Authorization"] == "Basic dXNlcjpwYXNz"


# --- failures


def test_the_next_server_is_asked_where_one_fails(make_server: MakeServer) -> None:
    refusing, nonsense, good = make_server(), make_server(), make_server()
    refusing.refuse()
    nonsense.body = b"no json"
    all_of_them = servers(
        refusing.address, good.address, nonsense.address, f"{HOST}:{closed_port()}", first=2
    )
    assert ask(all_of_them).identity == "me"
    assert [len(server.asked) for server in (refusing, nonsense, good)] == [1, 1, 1]


def test_when_all_fail_the_reasons_are_told(make_server: MakeServer) -> None:
    refusing, huge = make_server(), make_server()
    refusing.refuse(500, b"oh no")
    huge.body = b" " * (1024 * 1024 + 1)
    with pytest.raises(NoAuthorization) as failure:
        ask(servers(refusing.address, huge.address))
    assert str(failure.value) == (
        f'failed to auth against http://{refusing.address} - got response 500 Internal Server Error "oh no"; '
        f"failed to auth against http://{huge.address} - the answer is longer than 1048576 bytes"
    )


# --- TLS


def server_tls(certificates: Certificates) -> Any:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_certificate, certificates.server_key)
    return context


def trusting(certificates: Certificates) -> Callable[[], Any]:
    from gevent import ssl

    return lambda: ssl.create_default_context(cafile=str(certificates.authority))


def test_a_server_with_a_certificate_of_another_authority_is_not_trusted(
    make_server: MakeServer, certificates: Certificates
) -> None:
    from gevent import ssl

    server = make_server(server_tls(certificates))
    with pytest.raises(NoAuthorization, match="certificate verify failed"):
        ask(servers(f"https://{server.address}/auth", tls=ssl.create_default_context))
    assert server.asked == []


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_server_that_requires_tls_is_asked_over_it(
    make_server: MakeServer, certificates: Certificates, method: str
) -> None:
    plain, secure = make_server(), make_server(server_tls(certificates))
    plain.refuse(403, {"message": "TLS_REQUIRED", "https_port": secure.port})
    assert ask(servers(plain.address, method=method, tls=trusting(certificates))).identity == "me"
    (asked,) = secure.asked
    assert (asked.method, asked.path, asked.values) == (method.upper(), "/auth", VALUES)


@pytest.mark.parametrize(
    "body", [{}, [], {"https_port": 0}, {"https_port": "1"}, {"https_port": 70000}, b"no"]
)
def test_a_refusal_that_names_no_port(server: AuthServer, body: Any) -> None:
    server.refuse(403, body)
    with pytest.raises(NoAuthorization, match="got response 403"):
        ask(servers(server.address))
    assert len(server.asked) == 1


def test_a_file_of_authorities_that_is_gone(server: AuthServer) -> None:
    fail = Mock(side_effect=FileNotFoundError(2, "No such file or directory"))
    with pytest.raises(NoAuthorization, match="cannot set up TLS - No such file"):
        ask(servers(f"https://{server.address}/", tls=fail))


def test_others_run_between_the_expressions_of_a_long_answer() -> None:
    with counted_turns() as turns:
        found = authorization(
            answer_of((".*", tuple(f"^channel_{number}$" for number in range(4000)), ("publish",)))
        )
    assert len(found.rules[0].channels) == 4000
    assert len(turns) >= 2
