"""What nsqd says, before it starts, of its settings for nsqlookupds and of the TLS files for whom it connects to."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from nsqd_py.net.tls_options import ClientTls, client_tls_of, peer_context
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
@pytest.mark.parametrize("peer", ["client", "lookupd", "standby", "lease"])
def test_files_that_cannot_be_used(pem: Path, peer: str, flags: list[str], complaint: str) -> None:
    flags = [flag.format(pem).replace("lookupd", peer) for flag in flags]
    options = read_options(["--lease=etcds://a:1/b", "--tcp-address=127.0.0.1:4150", *flags])
    with pytest.raises(BadOptions, match=complaint.replace("lookupd", peer)) as refusal:
        check_options(options)
    assert "\n" not in str(refusal.value)


def test_a_peer_has_its_own_files_or_those_of_all_peers() -> None:
    flags = [f"--client-tls-{name}={name[0]}" for name in ("root-ca-file", "cert", "key")]
    common = ClientTls("r", "c", "k")
    for peer in ("lookupd", "standby", "lease", "auth"):
        assert client_tls_of(read_options(flags), peer) == common
        assert client_tls_of(read_options(["--client-tls-insecure-skip-verify"]), peer).insecure_skip_verify
    # The key of another certificate must not be used with a peer's own.
    options = read_options([*flags, "--lease-tls-cert=own", "--standby-tls-root-ca-file=own"])
    assert client_tls_of(options, "lease") == ClientTls("r", "own", "")
    assert client_tls_of(options, "standby") == ClientTls("own", "c", "k")
    assert client_tls_of(options, "lookupd") == common
    unverified = read_options(["--lookupd-tls-insecure-skip-verify"])
    assert [client_tls_of(unverified, peer).insecure_skip_verify for peer in ("lookupd", "lease")] == [
        True,
        False,
    ]


def test_an_auth_server_has_the_authorities_of_clients_unless_others_are_given(pem: Path) -> None:
    def authorities(*flags: str) -> int:
        options = read_options([flag.format(pem) for flag in flags])
        return int(peer_context(options, "auth", ssl.SSLContext).cert_store_stats()["x509"])

    assert authorities("--tls-root-ca-file={}/cert.pem") == 1
    assert authorities("--client-tls-root-ca-file={}/cert.pem") == 1
    with pytest.raises(OSError):
        authorities("--tls-root-ca-file={}/cert.pem", "--client-tls-root-ca-file={}/none.pem")


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
