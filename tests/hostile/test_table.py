"""Every route and command under hostile inputs on ten connections, while a neighbour goes on with its work.

On a quiet machine of two cores the neighbour's worst round trip stays under 100 ms. Here the bound is five times that,
for slower machines, and it counts only CPU time of the daemon (see `hostile_attack.Cost`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqd_py.api.routes import ROUTES as NSQD_ROUTE_TABLE
from nsqd_py.protocol.commands import COMMANDS as NSQD_COMMAND_TABLE
from nsqlookupd_py.connection import COMMANDS as LOOKUPD_COMMAND_TABLE
from nsqlookupd_py.http import ROUTES as LOOKUPD_ROUTE_TABLE
from tests.support.hostile_attack import TRANSPORTS, Open, attack, nsqd_over, plain
from tests.support.hostile_table import (
    ADMIN_ROUTES,
    LOOKUPD_COMMANDS,
    LOOKUPD_ROUTES,
    NSQD_COMMANDS,
    NSQD_ROUTES,
    Input,
    http_inputs,
)
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import NsqdProcess, ServerProcess
from tests.support.nsqlookupd_process import NsqlookupdProcess

MOST_WAIT_S = 0.5
MOST_GAINED_MB = 150
MOST_LOG_BYTES = 1024 * 1024
TRIES = 5
ROOT = Path(__file__).resolve().parents[2]

# One worker runs them all: they share their processes.
pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("hostile table")]


@pytest.fixture(scope="module")
def nsqd(certificates, tmp_path_factory) -> Iterator[NsqdProcess]:
    with NsqdProcess(
        tmp_path_factory.mktemp("hostile") / "nsqd", *certificates.nsqd_flags
    ).start() as process:
        process.create("hostile", "c#ephemeral")
        yield process


@pytest.fixture(scope="module")
def lookupd(tmp_path_factory) -> Iterator[NsqlookupdProcess]:
    with NsqlookupdProcess(tmp_path_factory.mktemp("hostile") / "nsqlookupd.log").start() as process:
        process.create_channel("neighbour", "c")
        yield process


@pytest.fixture(scope="module")
def admin(tmp_path_factory) -> Iterator[NsqadminProcess]:
    """An nsqadmin with an nsqlookupd that no other test fills with topics."""
    folder = tmp_path_factory.mktemp("hostile")
    with NsqlookupdProcess(folder / "nsqlookupd.log").start() as lookupd:
        lookupd.create_channel("hostile", "c")
        flags = ("--poll-interval=250ms", "--history-file=", f"--lookupd-http-address={lookupd.http_address}")
        with NsqadminProcess(folder / "nsqadmin.log", *flags).start() as admin:
            yield admin


def check(process: ServerProcess, openers: list[Open], inputs: list[bytes], what: str) -> None:
    """The best of TRIES counts for the time, all of them for memory and log."""
    for _ in range(TRIES):
        cost = attack(process, openers, inputs)
        print(f"{what}: {cost}")
        assert process.is_running
        assert cost.gained_mb < MOST_GAINED_MB, f"{what}: {cost}"
        assert cost.log_bytes < MOST_LOG_BYTES, f"{what}: {cost}"
        if cost.worst_s < MOST_WAIT_S:
            return
    raise AssertionError(f"{what}: {cost} in the last of {TRIES} tries")


# ---- nothing is left out


def routes_of(table: tuple[object, ...]) -> set[str]:
    return {f"{route.method} {route.path}" for route in table}


def admin_routes() -> set[str]:
    """As its source declares them."""
    source = (ROOT / "nsqadmin_py/daemon.py").read_text()
    found = re.findall(r'"((?:GET|POST|PUT|DELETE) /[^"]*)"', source)
    pages = re.findall(r'^    "(/[^"]*)",$', source, re.MULTILINE)
    assert len(found) > 20 and len(pages) > 5
    return {*found, *(f"GET {path}" for path in pages)}


def test_every_route_and_command_has_a_row():
    assert NSQD_ROUTES.keys() == routes_of(NSQD_ROUTE_TABLE)
    assert LOOKUPD_ROUTES.keys() == routes_of(LOOKUPD_ROUTE_TABLE)
    assert ADMIN_ROUTES.keys() == admin_routes()
    assert NSQD_COMMANDS.keys() - {""} == {name.decode() for name in NSQD_COMMAND_TABLE}
    assert LOOKUPD_COMMANDS.keys() - {""} == LOOKUPD_COMMAND_TABLE.keys() | {"IDENTIFY"}


# ---- TCP


def commands(table: dict[str, list[Input]], *, transports: bool) -> list[object]:
    """A parameter for each input and transport. In the quick lane: the first input of each command in one transport,
    another one for the next command, and the other inputs in plain.
    """
    found = []
    for place, (command, inputs) in enumerate(table.items()):
        for number, (name, _) in enumerate(inputs):
            for transport in TRANSPORTS if transports else TRANSPORTS[:1]:
                quick = TRANSPORTS[place % len(TRANSPORTS)] if transports and number == 0 else "plain"
                is_quick = transport == quick
                marks = [] if is_quick else [pytest.mark.slow]
                found.append(
                    pytest.param(command, number, transport, id=f"{command} {name} {transport}", marks=marks)
                )
    return found


@pytest.mark.parametrize(("command", "number", "transport"), commands(NSQD_COMMANDS, transports=True))
def test_nsqd_commands(nsqd, certificates, command, number, transport):
    name, make = NSQD_COMMANDS[command][number]
    check(
        nsqd,
        [nsqd_over(nsqd.tcp_port, transport, certificates)],
        [make()],
        f"nsqd {command} {name} {transport}",
    )
    assert nsqd.http("GET", "/ping").body == b"OK"


@pytest.mark.parametrize(("command", "number", "transport"), commands(LOOKUPD_COMMANDS, transports=False))
def test_nsqlookupd_commands(lookupd, command, number, transport):
    name, make = LOOKUPD_COMMANDS[command][number]
    check(lookupd, [plain(lookupd.tcp_port, b"  V1")], [make()], f"nsqlookupd {command} {name}")


# ---- HTTP


def routes(table: dict[str, str], *, slow: str = "none") -> list[object]:
    return [pytest.param(route, marks=[pytest.mark.slow] if slow in route else []) for route in sorted(table)]


@pytest.mark.parametrize("route", routes(NSQD_ROUTES))
def test_nsqd_routes(nsqd, route):
    check(nsqd, [plain(nsqd.http_port)], http_inputs(route, NSQD_ROUTES[route]), f"nsqd {route}")
    assert nsqd.http("GET", "/ping").body == b"OK"


@pytest.mark.parametrize("route", routes(LOOKUPD_ROUTES, slow="/debug/"))
def test_nsqlookupd_routes(lookupd, route):
    lookupd.create_channel("neighbour", "c")
    check(
        lookupd, [plain(lookupd.http_port)], http_inputs(route, LOOKUPD_ROUTES[route]), f"nsqlookupd {route}"
    )


@pytest.mark.parametrize("route", routes(ADMIN_ROUTES))
def test_nsqadmin_routes(admin, route):
    check(admin, [plain(admin.http_port)], http_inputs(route, ADMIN_ROUTES[route]), f"nsqadmin {route}")
