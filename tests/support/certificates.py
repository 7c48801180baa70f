"""Certificates that a test makes for itself: an authority, a server's for localhost and 127.0.0.1, a client's."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificates:
    """Files of one authority, and of what it signed, in PEM."""

    authority: Path
    server_certificate: Path
    server_key: Path
    client_certificate: Path
    client_key: Path

    @property
    def server_flags(self) -> list[str]:
        return [f"--tls-cert={self.server_certificate}", f"--tls-key={self.server_key}"]

    @property
    def nsqd_flags(self) -> list[str]:
        """The same for an nsqd, whose HTTPS is else on a port that several cannot share."""
        return [*self.server_flags, "--https-address=127.0.0.1:0"]

    def server_context(self) -> ssl.SSLContext:
        """What a server shows."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server_certificate, self.server_key)
        return context

    def client_context(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        """What a client trusts, and shows."""
        context = ssl.create_default_context(cafile=str(self.authority))
        if with_certificate:
            context.load_cert_chain(self.client_certificate, self.client_key)
        return context


def make_certificates(directory: Path, *server_names: str) -> Certificates:
    """A new authority with a server's and a client's certificate, written below `directory`.

    The server's is for `server_names`, or else for this machine.
    """
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "authority.pem"))
    for name, certificate in (
        ("server", authority.issue_cert(*(server_names or ("localhost", "127.0.0.1", "::1")))),
        ("client", authority.issue_cert("client@example.org")),
    ):
        certificate.private_key_pem.write_to_path(str(directory / f"{name}.key"))
        for index, part in enumerate(certificate.cert_chain_pems):
            part.write_to_path(str(directory / f"{name}.pem"), append=index > 0)
    return Certificates(
        directory / "authority.pem",
        directory / "server.pem",
        directory / "server.key",
        directory / "client.pem",
        directory / "client.key",
    )


def make_weak_certificates(directory: Path, key_bits: int = 1024) -> Certificates:
    """The same with short keys, as old authorities and Go's own tests have them."""
    directory.mkdir(parents=True, exist_ok=True)
    authority = _Weak("authority", key_bits)
    (directory / "authority.pem").write_bytes(authority.pem)
    for name in ("server", "client"):
        issued = _Weak(name, key_bits, authority)
        (directory / f"{name}.pem").write_bytes(issued.pem)
        (directory / f"{name}.key").write_bytes(issued.key_pem)
    files = ("authority.pem", "server.pem", "server.key", "client.pem", "client.key")
    return Certificates(*(directory / file for file in files))


class _Weak:
    """A certificate with a key of `key_bits`, signed by `issuer` or else by itself."""

    def __init__(self, name: str, key_bits: int, issuer: _Weak | None = None) -> None:
        self.key = rsa.generate_private_key(65537, key_bits)
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        signer = issuer or self
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.subject)
            .issuer_name(signer.subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
                ),
                critical=False,
            )
        )
        self.pem = builder.sign(signer.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.key_pem = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
