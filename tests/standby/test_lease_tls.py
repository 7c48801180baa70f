"""A lease of an etcd that wants TLS with certificates of its own authority."""

from __future__ import annotations

import pytest

from tests.support.certificates import make_certificates
from tests.support.etcd import ETCD, Etcd
from tests.support.standby_processes import lease_holders

pytestmark = pytest.mark.skipif(ETCD is None, reason="no etcd here")


def test_nsqd_shows_its_certificate_and_serves(tmp_path):
    certificates = make_certificates(tmp_path / "pem")
    with Etcd(tmp_path, certificates) as etcd:
        flags = (
            f"--lease={etcd.url('orders')}",
            "--lease-ttl=2s",
            f"--client-tls-root-ca-file={certificates.authority}",
            f"--client-tls-cert={certificates.client_certificate}",
            f"--client-tls-key={certificates.client_key}",
        )
        (nsqd,) = lease_holders(tmp_path, "a", *flags)
        with nsqd.start():
            nsqd.post("/pub?topic=t", b"1")
            assert etcd.store("orders").poll().holder == f"127.0.0.1:{nsqd.tcp_port}"
