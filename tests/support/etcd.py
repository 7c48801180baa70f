"""An etcd on free ports. Debian has it in etcd-server; tests are skipped where there is none."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

from nsqd_py.lease.store import LeaseError, LeaseStore, parse_lease_url
from nsqd_py.lease.stores import open_store
from nsqd_py.net.http.client import HttpClient
from tests.support.network import free_ports
from tests.support.nsqd_process import wait_until

ETCD = shutil.which("etcd")


class Etcd:
    """One member, with its data in `directory`."""

    def __init__(self, directory: Path) -> None:
        client_port, peer_port = free_ports(2)
        client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
        self.address = f"127.0.0.1:{client_port}"
        flags = (
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        with (directory / "etcd.log").open("w") as log:
            self.process = subprocess.Popen([str(ETCD), *flags], stdout=log, stderr=log)

    def wait_until_it_answers(self) -> None:
        wait_until(self.answers, 30, "etcd")

    def url(self, name: str) -> str:
        return f"etcd://{self.address}/{name}"

    def store(self, name: str, ttl_s: int = 2) -> LeaseStore:
        return open_store(parse_lease_url(self.url(name)), ttl_s, HttpClient(1, 1))

    def answers(self) -> bool:
        try:
            self.store("any").holder()
        except LeaseError:
            return False
        return True

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
