"""A lease of an etcd that wants TLS with certificates of its own authority."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Certificates, make_certificates
from tests.support.etcd import ETCD, Etcd
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess

DEADLINE_S = 40.0

pytestmark = pytest.mark.skipif(ETCD is None, reason="no etcd here")


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "pem")


@pytest.fixture
def etcd(tmp_path: Path, certificates: Certificates) -> Iterator[Etcd]:
    etcd = Etcd(tmp_path, certificates)
    try:
        etcd.wait_until_it_answers()
        yield etcd
    finally:
        etcd.end()


def test_nsqd_shows_its_certificate_and_serves(etcd: Etcd, certificates: Certificates, tmp_path: Path) -> None:
    flags = (
        f"--lease={etcd.url('orders')}",
        "--lease-ttl=2s",
        f"--lease-tls-root-ca-file={certificates.authority}",
        f"--lease-tls-cert={certificates.client_certificate}",
        f"--lease-tls-key={certificates.client_key}",
    )
    with NsqdProcess(tmp_path / "a", *flags, ports=_two_ports()) as nsqd:
        nsqd.start()
        with nsqd.connect() as client:
            client.pub("t", b"1")
        assert etcd.store("orders").look().holder == f"127.0.0.1:{nsqd.tcp_port}"


def _two_ports() -> tuple[int, int]:
    tcp_port, http_port = free_ports(2)
    return tcp_port, http_port
