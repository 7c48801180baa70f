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

import pytest

from nsqadmin_py.options import NSQADMIN
from nsqd_py.runtime.systemd import Notifier
from nsqd_py.server.options import NSQD
from nsqd_py.settings.program import Program
from nsqlookupd_py.options import NSQLOOKUPD

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


# ---- the units


def read_unit(name: str) -> dict[str, list[tuple[str, str]]]:
    """Sections with their settings, which may repeat."""
    sections = {}
    for line in (UNITS / name).read_text().splitlines():
        if line.startswith("["):
            settings = sections[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            settings.append((key, value))
    return sections


@pytest.mark.parametrize(
    ("name", "program"), [("nsqd", NSQD), ("nsqd@", NSQD), ("nsqlookupd", NSQLOOKUPD), ("nsqadmin", NSQADMIN)]
)
def test_a_service_runs_an_entry_point_with_flags_that_exist(name: str, program: Program) -> None:
    service = dict(read_unit(f"{name}.service")["Service"])
    path, *flags = service["ExecStart"].split()
    setup = configparser.ConfigParser()
    setup.read(UNITS.parents[1] / "setup.cfg")
    assert Path(path).name == program.command
    assert f"{program.command} = " in setup["options.entry_points"]["console_scripts"]
    known = {setting.name for setting in program.settings}
    assert {flag.partition("=")[0].removeprefix("--") for flag in flags} <= known
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) > 0


def test_one_nsqd_for_each_core_shares_nothing_with_another() -> None:
    one, template = (read_unit(f"{name}.service")["Service"] for name in ("nsqd", "nsqd@"))
    assert {key for key, _ in set(one) ^ set(template)} == {"Environment", "ExecStart", "StateDirectory"}
    line, folder = (
        dict(template)[key].replace("${HOST_NUMBER}", "0") for key in ("ExecStart", "StateDirectory")
    )
    _, _, *flags = line.split()
    options = [NSQD.read([flag.replace("%i", i) for flag in flags]) for i in "01"]
    assert [each.node_id for each in options] == [0, 1]
    assert [each.data_path for each in options] == [f"/var/lib/{folder}".replace("%i", i) for i in "01"]
    assert [(each.tcp_address, each.http_address) for each in options] == [
        (f"0.0.0.0:42{i}0", f"0.0.0.0:42{i}1") for i in "01"
    ]


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze checks the units of this test"
)
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
