"""Addresses of nsqlookupds, and which of a name's endpoints are used."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from nsqd_py.lookup.host import Endpoint, EndpointSelection, LookupAddress, LookupHost, parse_address, resolve
from nsqd_py.lookup.peer import LookupPeer
from nsqd_py.net.http.client import resolve_by_hub
from nsqd_py.runtime.logs.daemon_log import Log

V4 = Endpoint(socket.AF_INET, ("127.0.0.1", 4160))
OTHER_V4 = Endpoint(socket.AF_INET, ("127.0.0.2", 4160))
V6 = Endpoint(socket.AF_INET6, ("::1", 4160, 0, 0))


@pytest.mark.parametrize(
    ("text", "host", "endpoint"),
    [
        ("127.0.0.1:4160", "127.0.0.1", V4),
        ("[::1]:4160", "::1", V6),
        ("lookup.local:4160", "lookup.local", None),
        (":4160", "localhost", None),
    ],
)
def test_addresses(text: str, host: str, endpoint: Endpoint | None) -> None:
    address = parse_address(text)
    assert address == LookupAddress(text, host, 4160)
    assert address.endpoint == endpoint


@pytest.mark.parametrize(
    "text", ["", "host", "host:", "host:http", "host:0", "host:65536", "::1:4160", "/a/socket"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="port|brackets"):
        parse_address(text)


@pytest.mark.parametrize(
    "host", ["\N{REPLACEMENT CHARACTER}", "\ud800", "a" * 64, "a..b", ".", "a\0b", "a b", "xn--\xe9"]
)
@pytest.mark.parametrize("resolve_name", [resolve, resolve_by_hub])
def test_what_no_resolver_can_take(
    host: str, resolve_name: Callable[[str, int], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """Anybody can register such an address. gevent's resolver would print a traceback for it."""
    with pytest.raises(OSError, match="is not a host name"):
        resolve_name(host, 4161)
    assert capfd.readouterr() == ("", "")


def nobody(endpoint: Endpoint) -> bool:
    return False


@pytest.fixture
def selection() -> EndpointSelection:
    return EndpointSelection()


def test_the_first_family_is_used_alone(selection: EndpointSelection) -> None:
    assert selection.in_use == selection.all == ()
    selection.resolved([V4, V6, OTHER_V4, V4], nobody)
    assert selection.in_use == (V4, OTHER_V4)
    assert selection.all == (V4, V6, OTHER_V4)


def test_the_other_family_where_the_first_cannot_be_connected(selection: EndpointSelection) -> None:
    selection.resolved([V6, V4], nobody)
    assert selection.change_family()
    assert selection.in_use == (V4,)
    selection.resolved([V6, V4], nobody)  # what works is not left for an order
    assert selection.in_use == (V4,)
    assert selection.change_family()
    assert selection.in_use == (V6,)


def test_a_family_that_vanished_is_replaced(selection: EndpointSelection) -> None:
    selection.resolved([V6], nobody)
    selection.resolved([V4], nobody)
    assert selection.in_use == selection.all == (V4,)


def test_an_endpoint_that_vanished_stays_while_it_is_connected(selection: EndpointSelection) -> None:
    selection.resolved([V4], nobody)
    selection.resolved([OTHER_V4], lambda endpoint: endpoint == V4)
    assert selection.in_use == selection.all == (OTHER_V4, V4)
    selection.ended(V4)
    assert selection.in_use == selection.all == (OTHER_V4,)


@pytest.mark.parametrize("what", ["host", "peer"])
def test_after_a_bug_in_what_follows_an_attempt_comes_the_next_one(what: str) -> None:
    attempts, log = [], Log("[test] ")

    def fail(*_: object) -> bool:
        attempts.append(what)
        raise KeyError("a bug")

    if what == "host":
        started = LookupHost(parse_address("name:4160"), lambda *_: [V4], log, time.monotonic, nobody, fail)
    else:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            address = parse_address(f"127.0.0.1:{closed.getsockname()[1]}")
        context = SimpleNamespace(
            log=log, clock=time.monotonic, max_response_bytes=1, tls=None, on_failed=fail
        )
        started = LookupPeer(address.endpoint, address, context)
    started.start()
    with gevent.Timeout(40):
        while len(attempts) < 3:
            gevent.sleep(0)
    started.stop()
