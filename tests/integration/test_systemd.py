"""nsqd, nsqlookupd and nsqadmin under a service manager: what it hears, and the ports that it opens for them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.nsqadmin_process import nsqadmin_command
from tests.support.nsqd_process import REPOSITORY, nsqd_command, wait_until
from tests.support.nsqlookupd_process import nsqlookupd_command
from tests.support.wire import Client

pytestmark = pytest.mark.ours

# What systemd does between fork and exec: the sockets from descriptor 3 on, and the id of this process.
HANDOVER = """
import os, sys
for place, descriptor in enumerate(map(int, sys.argv[1].split(",")), 3):
    os.dup2(descriptor, place)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Manager:
    """Starts one service as systemd would, and hears what it says."""

    def __init__(self, directory: Path, command: list[str], *flags: str, **variables: str) -> None:
        self.log_path = directory / "log"
        self._command = [*command, *flags]
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(directory / "notify"))
        self._notify.settimeout(40)
        self._environment = os.environ | {"NOTIFY_SOCKET": str(directory / "notify")} | variables

    def start(self, *sockets: socket.socket) -> None:
        command = self._command
        variables = {}
        descriptors = [sock.fileno() for sock in sockets]
        if sockets:
            variables["LISTEN_FDS"] = str(len(sockets))
            command = [sys.executable, "-c", HANDOVER, ",".join(map(str, descriptors)), *command]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                stdout=log,
                stderr=log,
                env=self._environment | variables,
                pass_fds=descriptors,
            )

    def hear(self) -> dict[str, str]:
        """The next thing that it says, signs of life left out."""
        while True:
            said = dict(line.split("=", 1) for line in self._notify.recv(4096).decode().splitlines())
            if "WATCHDOG" not in said:
                return said

    def hear_until(self, key: str) -> dict[str, str]:
        while key not in (said := self.hear()):
            pass
        return said

    def hear_sign_of_life(self) -> None:
        while self._notify.recv(4096) != b"WATCHDOG=1":
            pass

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Ask it to end; return its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        return self._process.wait(40)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._notify.close()


COMMANDS = {"nsqd": nsqd_command, "nsqlookupd": nsqlookupd_command, "nsqadmin": nsqadmin_command}
Manage = Callable[..., Manager]


@pytest.fixture
def manage(tmp_path) -> Iterator[Manage]:
    """`manage(program, *flags, **variables)` returns a service that is not started yet."""
    managers = []
    own = {
        "nsqd": [f"--data-path={tmp_path / 'data'}"],
        "nsqadmin": [f"--history-file={tmp_path / 'history.db'}", "--lookupd-http-address=127.0.0.1:1"],
    }
    (tmp_path / "data").mkdir()

    def make(program, *flags, **variables):
        managers.append(Manager(tmp_path, COMMANDS[program](), *own.get(program, ()), *flags, **variables))
        return managers[-1]

    yield make
    for manager in managers:
        manager.close()


ANY_PORTS = ("--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0")


@pytest.fixture
def ports() -> Iterator[list[socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        yield [one, other]


def number(sock: socket.socket) -> int:
    return sock.getsockname()[1]


def ping(sock: socket.socket) -> bytes:
    with socket.create_connection(sock.getsockname(), timeout=40) as connection:
        connection.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
        return connection.makefile("rb").read().rpartition(b"\r\n")[2]


# ---- what it hears


def test_nsqd_says_what_it_does(manage):
    service = manage("nsqd", *ANY_PORTS, WATCHDOG_USEC="100000")
    service.start()
    assert service.hear() == {"STATUS": "loading messages"}
    ready = service.hear()
    assert ready["READY"] == "1"
    assert (place := re.fullmatch(r"serving on 127\.0\.0\.1:(\d+)", ready["STATUS"]))
    service.hear_sign_of_life()
    service.signal(signal.SIGHUP)
    assert service.hear()["RELOADING"] == "1"
    assert service.hear() == {"READY": "1"}
    with Client(int(place.group(1))) as producer:  # it listens since it said so
        producer.pub("orders", b"left")
    service.signal(signal.SIGUSR1)
    assert service.hear() == {"STATUS": "draining, 1 messages to deliver"}
    service.signal(signal.SIGTERM)
    assert service.hear_until("STOPPING")["STATUS"] == "stopping"
    assert service.wait() == 0


@pytest.mark.parametrize(("program", "flags"), [("nsqlookupd", ANY_PORTS), ("nsqadmin", ANY_PORTS[1:])])
def test_the_others_say_what_they_do(manage, program, flags):
    service = manage(program, *flags, WATCHDOG_USEC="100000")
    service.start()
    ready = service.hear()
    assert ready["READY"] == "1"
    assert re.match(r"serving on 127\.0\.0\.1:\d{2,}", ready["STATUS"])
    service.hear_sign_of_life()
    service.signal(signal.SIGHUP)
    assert service.hear()["RELOADING"] == "1"
    assert service.hear() == {"READY": "1"}
    service.signal(signal.SIGTERM)
    assert service.hear() == {"STOPPING": "1", "STATUS": "stopping"}
    assert service.wait() == 0


def test_a_start_that_fails_is_never_ready(manage, ports):
    service = manage("nsqd", f"--tcp-address=127.0.0.1:{number(ports[0])}")
    service.start()
    assert service.wait() == 1
    assert "READY" not in service.hear_until("STOPPING")


# ---- ports that are open already


def test_nsqd_serves_on_ports_that_were_open_before(manage, ports):
    http, tcp = ports
    service = manage("nsqd", LISTEN_FDNAMES="http:tcp:admin")
    with Client(number(tcp)) as producer, socket.create_server(("127.0.0.1", 0)) as useless:
        service.start(http, tcp, useless)  # the producer waits, and is not refused
        producer.pub("orders", b"early")
    assert "closing socket 'admin'" in service.log_path.read_text()
    assert ping(http) == b"OK"
    assert service.end() == 0
    with Client(number(tcp)):  # the manager holds the port, for the next start
        pass


def test_a_unix_socket_of_the_manager_stays(manage, tmp_path):
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        service = manage("nsqd", "--tcp-address=127.0.0.1:0", LISTEN_FDNAMES="http")
        service.start(sock)
        service.hear_until("READY")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
            assert client.makefile("rb").read().endswith(b"\r\nOK")
        assert service.end() == 0
        assert path.exists()


# ---- what it logs


@pytest.mark.parametrize("program", ["nsqd", "nsqlookupd"])
def test_with_json_every_line_is_an_object(manage, program):
    service = manage(program, *ANY_PORTS, "--log-format=json", "--log-level=debug")
    service.start()
    service.hear_until("READY")
    wait_until(lambda: "listening on" in service.log_path.read_text())
    assert service.end() == 0
    lines = [json.loads(line) for line in service.log_path.read_text().splitlines()]
    assert len(lines) > 3
    assert {tuple(line) for line in lines} == {("time", "level", "prefix", "message")}
    assert {line["prefix"] for line in lines} == {f"[{program}]"}
    assert lines[-1]["message"].endswith(": bye")
