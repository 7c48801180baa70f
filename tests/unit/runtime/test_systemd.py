"""What is said to systemd, and the sockets that it hands over, on real sockets."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqadmin_py.options import NSQADMIN
from nsqd_py.net.addresses import split_address
from nsqd_py.options import NSQD
from nsqd_py.runtime import systemd
from nsqd_py.runtime.systemd import InheritedSockets, Notifier
from nsqd_py.settings.program import Program
from nsqlookupd_py.options import NSQLOOKUPD
from tests.unit.fakes import FakeLog

UNITS = Path(__file__).resolve().parents[3] / "contrib" / "systemd"
PID = str(os.getpid())


class Manager:
    """systemd's end of the socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind("\0" + address[1:] if address.startswith("@") else address)
        self._sock.settimeout(40)

    def hear(self) -> str:
        return self._sock.recv(4096).decode()

    def close(self) -> None:
        self._sock.close()


@pytest.fixture(params=["a path", "an abstract name"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify") if request.param == "a path" else f"@nsqd-test-{uuid.uuid4()}")
    yield manager
    manager.close()


# ---- what is said


def test_a_reload_begins_and_ends_also_when_it_fails(manager: Manager) -> None:
    with pytest.raises(OSError), Notifier(manager.address).reloading():
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", manager.hear())
        raise OSError
    assert manager.hear() == "READY=1"


def test_a_manager_that_does_not_read_stops_nothing(manager: Manager) -> None:
    notifier = Notifier(manager.address)
    filler = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    filler.setblocking(False)
    with filler, pytest.raises(BlockingIOError):
        while True:
            filler.sendto(b"STATUS=full", notifier._address)
    notifier.status("who listens?")  # would wait for ever
    assert manager.hear() == "STATUS=full"


@pytest.mark.parametrize(
    ("variables", "watchdog_s"),
    [
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": PID}, 30.0),
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_what_the_environment_says_is_not_for_children(variables: dict[str, str], watchdog_s: float) -> None:
    environment = {"NOTIFY_SOCKET": "/run/notify", "PATH": "/bin", **variables}
    assert Notifier.from_environment(environment).watchdog_s == watchdog_s
    assert environment == {"PATH": "/bin"}


# ---- sockets that are open already


class WarningLog(FakeLog):
    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []

    def warning(self, *arguments: object) -> None:
        text, *values = arguments
        self.warnings.append(str(text) % tuple(values))


class Handover:
    """Descriptors in a row, as systemd leaves them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._first = 0
        self._names: list[str] = []
        self.log: Any = WarningLog()

    def add(self, name: str, sock: socket.socket) -> socket.socket:
        """Hand the socket over under this name; the test keeps its own end."""
        if not self._first:
            self._first = 500
            self._monkeypatch.setattr(systemd, "FIRST_DESCRIPTOR", self._first)
        os.dup2(sock.fileno(), self._first + len(self._names))
        self._names.append(name)
        return sock

    def environment(self, **changes: str) -> dict[str, str]:
        return {"LISTEN_PID": PID, "LISTEN_FDS": str(len(self._names)), "LISTEN_FDNAMES": ":".join(self._names)} | changes

    def take(self, **changes: str) -> InheritedSockets:
        return InheritedSockets.from_environment(self.log, self.environment(**changes))

    def close(self) -> None:
        for number in range(len(self._names)):
            try:
                os.close(self._first + number)
            except OSError:
                continue


@pytest.fixture
def handover(monkeypatch: pytest.MonkeyPatch) -> Iterator[Handover]:
    handover = Handover(monkeypatch)
    yield handover
    handover.close()


@pytest.fixture
def listening() -> Iterator[list[socket.socket]]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    yield sockets
    for sock in sockets:
        sock.close()


def ports(taken: Any) -> list[int | None]:
    found = [sock and sock.getsockname()[1] for sock in taken]
    for sock in taken:
        if sock is not None:
            sock.close()
    return found


def port(sock: socket.socket) -> int:
    number: int = sock.getsockname()[1]
    return number


def test_what_nobody_takes_is_closed(handover: Handover, listening: list[socket.socket]) -> None:
    handover.add("admin", listening[0])
    inherited = handover.take()
    inherited.close_others()
    [warning] = handover.log.warnings
    assert "closing socket 'admin'" in warning
    with pytest.raises(OSError):
        os.fstat(500)


def test_what_does_not_listen_for_streams_is_not_used(handover: Handover, listening: list[socket.socket]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, socket.socket() as deaf:
        handover.add("tcp", datagrams)
        handover.add("tcp", deaf)
        handover.add("tcp", listening[0])
        assert ports(handover.take().take("tcp", "")) == [port(listening[0])]
    assert [warning.partition(") ")[2] for warning in handover.log.warnings] == ["is not a listening stream socket"] * 2


@pytest.mark.parametrize(
    "changes", [{"LISTEN_PID": "1"}, {"LISTEN_PID": ""}, {"LISTEN_FDS": ""}, {"LISTEN_FDS": "-1"}, {"LISTEN_FDS": "x"}]
)
def test_sockets_of_others_are_left_alone(handover: Handover, listening: list[socket.socket], changes: dict[str, str]) -> None:
    handover.add("tcp", listening[0])
    assert ports(handover.take(**changes).take("tcp", "")) == [None]
    os.fstat(500)


# ---- the units


def read_unit(name: str) -> dict[str, list[tuple[str, str]]]:
    """Sections with their settings, which may repeat."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for line in (UNITS / name).read_text().splitlines():
        if line.startswith("["):
            settings = sections[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            settings.append((key, value))
    return sections


@pytest.mark.parametrize("program", [NSQD, NSQLOOKUPD, NSQADMIN], ids=lambda program: program.name)
def test_a_service_runs_an_entry_point_with_flags_that_exist(program: Program) -> None:
    service = dict(read_unit(f"{program.name}.service")["Service"])
    path, *flags = service["ExecStart"].split()
    setup = configparser.ConfigParser()
    setup.read(UNITS.parents[1] / "setup.cfg")
    assert Path(path).name == program.command
    assert f"{program.command} = " in setup["options.entry_points"]["console_scripts"]
    known = {setting.name for setting in program.settings}
    assert {flag.partition("=")[0].removeprefix("--") for flag in flags} <= known
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) > 0


def test_the_sockets_are_at_the_default_ports() -> None:
    streams = [int(value) for key, value in read_unit("nsqd.socket")["Socket"] if key == "ListenStream"]
    options = NSQD.defaults()
    defaults = [split_address(address) for address in (options.tcp_address, options.http_address)]
    assert streams == [address and address[1] for address in defaults]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze checks the units of this test")
@pytest.mark.parametrize("name", sorted(path.name for path in UNITS.iterdir()))
def test_systemd_takes_the_unit(tmp_path: Path, name: str) -> None:
    for path in UNITS.iterdir():  # a unit whose program is not installed is refused
        (tmp_path / path.name).write_text(re.sub(r"/usr/local/bin/\S+", "/bin/true", path.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
