"""The machine that a page describes: its ports, its addresses and its directories.

`NamespaceMachine` has a network, and a root directory, of its own: what a page says can be run as it is printed, while
other programs use the same ports. It needs util-linux and iproute2, and a kernel that lets users have namespaces.
`SharedMachine` is this one: addresses and directories in the text are replaced by free ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import psutil

from tests.support.nsqd_process import REPOSITORY, wait_until

BIN = Path(sys.executable).parent
COMMANDS = (
    "nsqd-py",
    "nsqlookupd-py",
    "nsqadmin-py",
    "nsq-tail",
    "nsq-stat",
    "nsq-to-file",
    "nsq-to-http",
    "nsq-to-nsq",
    "spark-replay",
    "to-nsq",
)
START_DEADLINE_S = 40.0
STOP_DEADLINE_S = 40.0

# What the pages name. Other machines are addresses of this one.
ADDRESSES = ("10.0.0.1", "10.0.0.2")
HOSTS = ("nsq1",)
DIRECTORIES = (
    "/archive",
    "/lake",
    "/tables",
    "/etc/nsq",
    "/mnt/archive",
    "/var/archive",
    "/var/lib/nsqd",
    "/var/lib/replay",
    "/var/lib/store",
    "/var/spool/nsq",
)
_ADDRESS = re.compile(
    rf"\b(127\.0\.0\.1|localhost|{'|'.join(map(re.escape, (*ADDRESSES, *HOSTS)))}):(\d{{4,5}})\b"
)


# Where the daemons of contrib/run-local.sh listen if not on their default ports.
_RUN_LOCAL = {
    "NSQLOOKUPD_FLAGS": "--tcp-address=127.0.0.1:4160 --http-address=127.0.0.1:4161",
    "NSQD_FLAGS": "--tcp-address=127.0.0.1:4150 --http-address=127.0.0.1:4151",
    "NSQADMIN_FLAGS": "--http-address=127.0.0.1:4171",
    "NSQLOOKUPD_TCP_ADDRESS": "127.0.0.1:4160",
    "NSQLOOKUPD_HTTP_ADDRESS": "127.0.0.1:4161",
}


class Unavailable(Exception):
    """This machine cannot have namespaces, for the reason given."""


class Machine(Protocol):
    """`has_default_ports`: servers that a page starts itself find the ports that they take by default free."""

    has_default_ports: bool
    directory: Path

    def text(self, code: str) -> str:
        """Return the code with the addresses and directories that it has here."""

    def path(self, directory: str) -> Path:
        """Return where one of DIRECTORIES is, as the tests see it."""

    def popen(self, command: list[str], cwd: Path, **settings: Any) -> subprocess.Popen[bytes]:
        """Start a program there, at the head of its own process group."""

    def close(self) -> None:
        """End everything that runs there."""


# Of the environment of the tests, because they cost or save processor time.
_KEPT = ("JAVA_HOME", "PYTHONDONTWRITEBYTECODE", "SPARK_SUBMIT_OPTS")


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user who has just logged in, with the installed commands first on the PATH."""
    missing = [command for command in COMMANDS if not (BIN / command).exists()]
    assert not missing, (
        f"{', '.join(missing)} missing in {BIN}: install the checkout there (pip install -e '.[all]')"
    )
    return {
        "PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(home),
        "CURL_HOME": str(REPOSITORY / "tests/docs"),  # its .curlrc: an answer that is an error is a failure
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "TZ": "UTC",
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
    }


def open_machine(directory: Path) -> Machine:
    """Return namespaces where they are allowed, else this machine. CLUSTER_NETWORK=loopback or =namespaces decides."""
    wanted = os.environ.get("CLUSTER_NETWORK", "")
    if wanted != "loopback":
        try:
            return NamespaceMachine(directory)
        except Unavailable:
            if wanted == "namespaces":
                raise
    return SharedMachine(directory)


class NamespaceMachine:
    """Network, mounts and root directory of its own, as long as the process lives that holds them."""

    has_default_ports = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in DIRECTORIES:
            self.path(name).mkdir(parents=True)
        missing = [name for name in ("unshare", "nsenter", "ip", "mount") if shutil.which(name) is None]
        if missing:
            raise Unavailable(f"no {', '.join(missing)}")
        command = [
            "unshare",
            "--map-root-user",
            "--net",
            "--mount",
            sys.executable,
            "-m",
            "tests.docs.new_root",
        ]
        self._holder = subprocess.Popen(
            [
                *command,
                directory / "root",
                self._places,
                ",".join(DIRECTORIES),
                ",".join(ADDRESSES),
                ",".join(HOSTS),
            ],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if self._holder.stdout.readline() != b"ready\n":
            self._holder.kill()
            raise Unavailable(self._holder.stderr.read().decode("utf-8", "replace").strip())
        self.network = network_of(self._holder.pid)

    @property
    def _places(self) -> Path:
        return self.directory / "places"

    def text(self, code: str) -> str:
        return code

    def path(self, directory: str) -> Path:
        return self._places / directory.lstrip("/")

    def popen(self, command: list[str], cwd: Path, **settings: Any) -> subprocess.Popen[bytes]:
        enter = ["nsenter", f"--target={self._holder.pid}", "--user", "--net", "--mount", "--root"]
        enter += ["--preserve-credentials", "--", "env", f"--chdir={cwd}"]
        return subprocess.Popen([*enter, *command], env=environment(cwd), start_new_session=True, **settings)

    def close(self) -> None:
        wait_until(self._has_ended_all, STOP_DEADLINE_S, "programs in the namespace to end")
        self._holder.communicate()  # closes its input, and it ends

    def _has_ended_all(self) -> bool:
        """Kill what runs in this network. No other process can be in it."""
        left = [pid for pid in psutil.pids() if pid != self._holder.pid and network_of(pid) == self.network]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left


def network_of(pid: int) -> str:
    """Return the name of the network namespace of a process; empty if the process has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


class SharedMachine:
    """Free ports of 127.0.0.1 for all addresses, and directories below the one of the test."""

    has_default_ports = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ports: dict[str, int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        for name in DIRECTORIES:
            self.path(name).mkdir(parents=True)

    def text(self, code: str) -> str:
        for name in sorted(DIRECTORIES, key=len, reverse=True):
            code = re.sub(rf"(?<![\w.]){name}(?![\w-])", str(self.path(name)), code)
        return _ADDRESS.sub(lambda match: f"127.0.0.1:{self._port(match[0])}", code)

    def _port(self, address: str) -> int:
        """Return the port that stands for the address, the same one each time."""
        address = address.replace("localhost", "127.0.0.1").replace("nsq1", "127.0.0.1")
        if address not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._ports[address] = free.getsockname()[1]
        return self._ports[address]

    def path(self, directory: str) -> Path:
        return self.directory / "places" / directory.lstrip("/")

    def popen(self, command: list[str], cwd: Path, **settings: Any) -> subprocess.Popen[bytes]:
        own = environment(cwd) | {name: self.text(value) for name, value in _RUN_LOCAL.items()}
        process = subprocess.Popen(command, cwd=cwd, env=own, start_new_session=True, **settings)
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


class Server:
    """A daemon on the machine, with its output in a file; `ready` is a text in it that says that it serves."""

    def __init__(self, machine: Machine, name: str, command: list[str], ready: str) -> None:
        self.log = machine.directory / f"{name}.log"
        words = [machine.text(word) for word in command]
        with self.log.open("wb") as log:
            self.process = machine.popen(
                words, machine.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        ready = machine.text(ready)
        self._wait(lambda: ready in self.log.read_text("utf-8", "replace"), f"{name} to say {ready!r}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while not condition():
            text = self.log.read_text("utf-8", "replace")
            assert self.process.poll() is None, (
                f"waited for {what}; it ended with {self.process.returncode}:\n{text}"
            )
            assert time.monotonic() < deadline, f"waited {START_DEADLINE_S} s for {what}:\n{text}"
            time.sleep(0.02)

    def stop(self) -> int:
        """Return the exit status after SIGTERM."""
        self.process.terminate()
        return self.process.wait(STOP_DEADLINE_S)
