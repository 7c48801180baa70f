"""Clients of others find the new primary: publishers by their list of addresses, consumers through nsqlookupd."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.failover_clients import CHANNEL, TOPIC
from tests.support.network import free_ports
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.standby_processes import promote, wait_until_it_follows

NSQJS = REPOSITORY / "tests" / "support" / "nsqjs"
MODULES = {"pynsq": "nsq", "gnsq": "gnsq", "ansq": "ansq"}
DEADLINE_S = 60.0
SOME = 30


class Clients:
    """The program with the clients. `acknowledged` and `received` are the bodies so far."""

    def __init__(self, library: str, lookupd: NsqlookupdProcess, nsqds: list[NsqdProcess], log_path: Path) -> None:
        command = ["node", str(NSQJS / "failover.js")]
        if library != "nsqjs":
            command = [sys.executable, "-m", "tests.support.failover_clients", library]
        command += [str(port) for port in (lookupd.http_port, *(nsqd.tcp_port for nsqd in nsqds))]
        self.acknowledged: set[str] = set()
        self.received: set[str] = set()
        with log_path.open("w") as log:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, body = line.strip().partition(" ")
            (self.acknowledged if word == "OK" else self.received).add(body)

    def wait_for_more(self) -> None:
        """Waits until both have some more messages than they have now."""
        acknowledged, received = len(self.acknowledged) + SOME, len(self.received) + SOME
        wait_until(lambda: len(self.acknowledged) >= acknowledged, DEADLINE_S, "messages that are acknowledged")
        wait_until(lambda: len(self.received) >= received, DEADLINE_S, "messages that are received")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[NsqlookupdProcess, NsqdProcess, NsqdProcess]]:
    """nsqlookupd, a primary with the topic, and its standby."""
    lookupd = NsqlookupdProcess(tmp_path / "nsqlookupd.log").start()
    ports = free_ports(4)
    discovery = f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}"
    primary = NsqdProcess(tmp_path / "a", discovery, "--standby-acks=1", ports=(ports[0], ports[1]))
    flags = (f"--standby-of=127.0.0.1:{ports[0]}", "--node-id=1")
    standby = NsqdProcess(tmp_path / "b", discovery, *flags, ports=(ports[2], ports[3]))
    try:
        primary.start().create(TOPIC, CHANNEL)
        wait_until_it_follows(standby.start())
        wait_until(lambda: lookupd.lookup(TOPIC), DEADLINE_S, "the primary to register")
        yield lookupd, primary, standby
    finally:
        for process in (primary, standby, lookupd):
            process.destroy()


@pytest.mark.parametrize(
    "library", ["pynsq", *(pytest.param(library, marks=pytest.mark.slow) for library in ("gnsq", "ansq", "nsqjs"))]
)
def test_clients_go_on_at_the_promoted_standby(
    cluster: tuple[NsqlookupdProcess, NsqdProcess, NsqdProcess], library: str, tmp_path: Path
) -> None:
    if library == "nsqjs":
        if not (NSQJS / "node_modules" / "nsqjs").is_dir() or not shutil.which("node"):
            pytest.skip("needs Node.js with npm: `make test` installs nsqjs where they are")
    elif importlib.util.find_spec(MODULES[library]) is None:
        pytest.skip(f"needs the module {MODULES[library]}")
    lookupd, primary, standby = cluster
    clients = Clients(library, lookupd, [primary, standby], tmp_path / "clients.log")
    try:
        clients.wait_for_more()
        primary.kill()
        promote(standby)
        clients.wait_for_more()
        acknowledged = set(clients.acknowledged)
        wait_until(lambda: acknowledged <= clients.received, DEADLINE_S, "all that was acknowledged")
    finally:
        clients.end()
