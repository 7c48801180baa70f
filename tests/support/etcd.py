"""An etcd on free ports. Debian has it in etcd-server; tests are skipped where there is none."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

from nsqd_py.lease.etcd import EtcdStore
from nsqd_py.lease.store import LeaseError, parse_lease_url
from nsqd_py.net.http.client import HttpClient
from tests.support.certificates import Certificates
from tests.support.network import LOOPBACK, Host, free_ports
from tests.support.nsqd_process import wait_until

ETCD = shutil.which("etcd")


class Etcd:
    """One member, with its data in `directory`. It may be killed and started again.

    With certificates, its clients have to show one.
    """

    def __init__(
        self, directory: Path, certificates: Certificates | None = None, host: Host = LOOPBACK
    ) -> None:
        client_port, peer_port = free_ports(2)
        self._is_secure = certificates is not None
        scheme = "https" if self._is_secure else "http"
        self.address = f"{host.address}:{client_port}"
        client, peer = f"{scheme}://{self.address}", f"http://{host.address}:{peer_port}"
        self._log_path = directory / "etcd.log"
        self._command = [
            *host.command_prefix,
            str(ETCD),
            f"--data-dir={directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]
        if certificates:
            self._command += (
                f"--cert-file={certificates.server_certificate}",
                f"--key-file={certificates.server_key}",
                f"--trusted-ca-file={certificates.authority}",
                "--client-cert-auth",
            )
        self._tls = certificates.client_context(with_certificate=True) if certificates else None
        self.start()

    def __enter__(self) -> Self:
        self.wait_until_it_answers()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        with self._log_path.open("a") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def wait_until_it_answers(self) -> None:
        wait_until(self.answers, 40, "etcd")

    def url(self, name: str) -> str:
        return f"etcd{'s' * self._is_secure}://{self.address}/{name}"

    def store(self, name: str, ttl_s: int = 2) -> EtcdStore:
        return EtcdStore(parse_lease_url(self.url(name)), ttl_s, HttpClient(1, 1, tls=self._tls))

    def answers(self) -> bool:
        try:
            self.store("any").poll()
        except LeaseError:
            return False
        return True

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
