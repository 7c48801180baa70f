"""Whatever a client repeats, the log gets a burst of lines of each kind, and then one line a second."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from nsqd_py.runtime.logs.daemon_log import CLIENT_BURST
from tests.support import hostile_table
from tests.support.nsqd_process import ServerProcess
from tests.support.sweeps import sampled
from tests.support.wire import fin, identify, sized, sub

TIMES = 300
# A request to change nsqlookupds causes lines of six kinds. Each kind has a burst, and then a line a second.
KINDS = 7

# One worker runs them all: they share their processes.
pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("log lines")]


def check(daemon: ServerProcess, repeat: Callable[[int], None]) -> None:
    began_s, lines = time.monotonic(), daemon.log_text().count("\n")
    for number in range(TIMES):
        repeat(number)
    added = daemon.log_text().count("\n") - lines
    assert added <= KINDS * (CLIENT_BURST + time.monotonic() - began_s), daemon.log_text()[-2000:]


def request_of(daemon: ServerProcess, route: str, query: str) -> Callable[[int], None]:
    """Return a function that asks for a route: with other names and a good or bad body each time."""
    method, path = hostile_table.path_of(route)
    connection = http.client.HTTPConnection("127.0.0.1", daemon.http_port, timeout=40)

    def ask(number: int) -> None:
        target = (path + query).replace("hostile", f"hostile{number}")
        body = (b"debug", b"info", b"\x1b[2J", b'["127.0.0.1:%d"]' % number, b'["h%d.invalid:1"]' % number)[
            number % 5
        ]
        if method == "PUT" and number % 5 > 2:
            target = target.replace("log_level", "nsqlookupd_tcp_addresses")
        with suppress(http.client.HTTPException, OSError):
            connection.request(method, target, None if method == "GET" else body)
            connection.getresponse().read()

    return ask


# Each takes seconds, or ends the process; their lines are those of other paths.
SLOW = ("/debug/", "/drain", "/events", "/render")


TABLES = (hostile_table.NSQD_ROUTES, hostile_table.LOOKUPD_ROUTES, hostile_table.ADMIN_ROUTES)
ROUTES = [
    (number, route)
    for number, table in enumerate(TABLES)
    for route in sorted(table)
    if not any(map(route.count, SLOW))
]


@pytest.mark.parametrize(
    ("number", "route"), sampled(ROUTES, *(case for case in ROUTES if not case[1].startswith("GET")))
)
def test_routes(daemons, number, route):
    check(daemons[number], request_of(daemons[number], route, TABLES[number][route]))


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
    *(
        name.encode() + rest
        for name in hostile_table.LOOKUPD_COMMANDS
        for rest in (b"\n", b" \x1b[2J #\n", b"\n" + sized(b"[]"))
    ),
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


@pytest.mark.parametrize("line", sampled(NSQD_LINES, *NSQD_LINES[::4]))
def test_nsqd_commands(daemons, line):
    check(daemons[0], command_of(daemons[0], b"  V2", line))


@pytest.mark.parametrize("line", LOOKUPD_LINES)
def test_nsqlookupd_commands(daemons, line):
    check(daemons[1], command_of(daemons[1], b"  V1", line))


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n\r\n", b"\xff\x1b\x9b\x00", b""])
def test_what_is_no_protocol(daemons, first):
    for daemon in daemons[:2]:
        check(daemon, command_of(daemon, first, b""))
