"""Whatever a client repeats, the log gets a burst of lines of each kind, and then one line a second."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from nsqd_py.runtime.logs import CLIENT_BURST
from tests.support import hostile_table
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import NsqdProcess, ServerProcess
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.wire import fin, identify, sized, sub

TIMES = 300
# A request to change nsqlookupds causes lines of six kinds.
MOST_LINES = 7 * CLIENT_BURST

# One worker runs them all: they share their processes.
pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("log lines")]


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqdProcess]:
    process = NsqdProcess(tmp_path_factory.mktemp("log") / "nsqd").start()
    yield process
    process.destroy()


@pytest.fixture(scope="module")
def lookupd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqlookupdProcess]:
    process = NsqlookupdProcess(tmp_path_factory.mktemp("log") / "nsqlookupd.log").start()
    yield process
    process.destroy()


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory, lookupd: NsqlookupdProcess) -> Iterator[NsqadminProcess]:
    flags = ("--history-file=", f"--lookupd-http-address={lookupd.http_address}")
    process = NsqadminProcess(tmp_path_factory.mktemp("log") / "nsqadmin.log", *flags).start()
    yield process
    process.destroy()


def check(daemon: ServerProcess, repeat: Callable[[int], None]) -> None:
    began_s, lines = time.monotonic(), daemon.log_text().count("\n")
    for number in range(TIMES):
        repeat(number)
    added = daemon.log_text().count("\n") - lines
    assert added <= MOST_LINES + (time.monotonic() - began_s), daemon.log_text()[-2000:]


def request_of(daemon: ServerProcess, route: str, query: str) -> Callable[[int], None]:
    """Return a function that asks for a route: with other names and a good or bad body each time."""
    method, path = hostile_table.path_of(route)
    connection = http.client.HTTPConnection("127.0.0.1", daemon.http_port, timeout=40)

    def ask(number: int) -> None:
        target = (path + query).replace("hostile", f"hostile{number}")
        body = (b"debug", b"info", b"\x1b[2J", b'["127.0.0.1:%d"]' % number, b'["h%d.invalid:1"]' % number)[number % 5]
        if method == "PUT" and number % 5 > 2:
            target = target.replace("log_level", "nsqlookupd_tcp_addresses")
        with suppress(http.client.HTTPException, OSError):
            connection.request(method, target, None if method == "GET" else body)
            connection.getresponse().read()

    return ask


# Each takes seconds, or ends the process; their lines are those of other paths.
SLOW = ("/debug/", "/drain", "/events", "/render")


def routes(table: dict[str, str]) -> list[str]:
    return sorted(route for route in table if not any(part in route for part in SLOW))


@pytest.mark.parametrize("route", routes(hostile_table.NSQD_ROUTES))
def test_nsqd_routes(nsqd: NsqdProcess, route: str) -> None:
    check(nsqd, request_of(nsqd, route, hostile_table.NSQD_ROUTES[route]))


@pytest.mark.parametrize("route", routes(hostile_table.LOOKUPD_ROUTES))
def test_nsqlookupd_routes(lookupd: NsqlookupdProcess, route: str) -> None:
    check(lookupd, request_of(lookupd, route, hostile_table.LOOKUPD_ROUTES[route]))


@pytest.mark.parametrize("route", routes(hostile_table.ADMIN_ROUTES))
def test_nsqadmin_routes(admin: NsqadminProcess, route: str) -> None:
    check(admin, request_of(admin, route, hostile_table.ADMIN_ROUTES[route]))


NSQD_LINES = [
    *(
        name.encode() + rest
        for name in hostile_table.NSQD_COMMANDS
        for rest in (b"\n", b" \x1b[2J #\n", b" t c\n" + sized(b"{}"))
    ),
    identify(client_id="\x1b[2J", feature_negotiation=True),
    sub("t", "c") + fin(b"0123456789abcdef") * 20,
]
LOOKUPD_LINES = [
    *(name.encode() + rest for name in hostile_table.LOOKUPD_COMMANDS for rest in (b"\n", b" \x1b[2J #\n", b"\n" + sized(b"[]"))),
    hostile_table.identify_nsqd() + b"".join(b"REGISTER t%d c\n" % number for number in range(20)),
]


def command_of(daemon: ServerProcess, magic: bytes, line: bytes) -> Callable[[int], None]:
    """Return a function that sends a line on a connection, and waits until the daemon has ended it."""

    def send(number: int) -> None:
        with socket.create_connection(("127.0.0.1", daemon.tcp_port), 40) as sock, suppress(OSError):
            sock.sendall(magic + line)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass

    return send


@pytest.mark.parametrize("line", NSQD_LINES)
def test_nsqd_commands(nsqd: NsqdProcess, line: bytes) -> None:
    check(nsqd, command_of(nsqd, b"  V2", line))


@pytest.mark.parametrize("line", LOOKUPD_LINES)
def test_nsqlookupd_commands(lookupd: NsqlookupdProcess, line: bytes) -> None:
    check(lookupd, command_of(lookupd, b"  V1", line))


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n\r\n", b"\xff\x1b\x9b\x00", b""])
def test_what_is_no_protocol(nsqd: NsqdProcess, lookupd: NsqlookupdProcess, first: bytes) -> None:
    for daemon in (nsqd, lookupd):
        check(daemon, command_of(daemon, first, b""))
