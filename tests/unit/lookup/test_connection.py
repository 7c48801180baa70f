"""What nsqd says, before it starts, of its settings for nsqlookupds and of the TLS files for whom it connects to."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from nsqd_py.net.tls_options import peer_context
from nsqd_py.server.options import BadOptions, check_options, read_options
from tests.support.certificates import Certificates


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Path:
    """A directory with cert.pem, key.pem, and both.pem, which holds the two."""
    directory = tmp_path_factory.mktemp("pem")
    key, certificate = certificates.server_key.read_bytes(), certificates.server_certificate.read_bytes()
    for name, content in {"key.pem": key, "cert.pem": certificate, "both.pem": key + certificate}.items():
        (directory / name).write_bytes(content)
    return directory


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--lookupd-tls-key={}/key.pem"], "^--lookupd-tls-key needs --lookupd-tls-cert$"),
        (["--lookupd-tls-cert={}/none.pem"], "^--lookupd-tls-cert: cannot use .*/none.pem: No such file"),
        (["--lookupd-tls-cert={}/cert.pem"], "^--lookupd-tls-cert: cannot use .*/cert.pem: "),
        (
            ["--lookupd-tls-cert={}/key.pem", "--lookupd-tls-key={}/cert.pem"],
            "^--lookupd-tls-cert: cannot use .*/key.pem with .*/cert.pem: ",
        ),
        (["--lookupd-tls-root-ca-file={}/key.pem"], "^cannot use --lookupd-tls-root-ca-file .*/key.pem: "),
    ],
)
@pytest.mark.parametrize("peer", ["lookupd", "standby", "lease"])
def test_files_that_cannot_be_used(pem: Path, peer: str, flags: list[str], complaint: str) -> None:
    flags = [flag.format(pem).replace("lookupd", peer) for flag in flags]
    options = read_options(["--lease=etcds://a:1/b", "--tcp-address=127.0.0.1:4150", *flags])
    with pytest.raises(BadOptions, match=complaint.replace("lookupd", peer)) as refusal:
        check_options(options)
    assert "\n" not in str(refusal.value)


def test_certificates_for_a_lease_without_tls(pem: Path) -> None:
    flags = ["--lease=etcd://a:1/b", "--tcp-address=127.0.0.1:4150", f"--lease-tls-cert={pem}/both.pem"]
    with pytest.raises(BadOptions, match="^--lease-tls-.* needs a lease of etcds://$"):
        check_options(read_options(flags))


@pytest.mark.parametrize(
    "flags",
    [
        [
            "--lookupd-tls-cert={}/cert.pem",
            "--lookupd-tls-key={}/key.pem",
            "--lookupd-tls-root-ca-file={}/cert.pem",
        ],
        ["--lookupd-tls-cert={}/both.pem"],
        [],
    ],
)
def test_files_that_can_be_used(pem: Path, flags: list[str]) -> None:
    options = read_options(["--lookupd-tls", *(flag.format(pem) for flag in flags)])
    check_options(options)
    context = peer_context(options, "lookupd", ssl.SSLContext)
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_verification_is_left_out_only_when_told_so() -> None:
    context = peer_context(
        read_options(["--lookupd-tls", "--lookupd-tls-insecure-skip-verify"]), "lookupd", ssl.SSLContext
    )
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)
