"""Certificates that a test makes for itself: an authority, a server's for localhost and 127.0.0.1, a client's."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme


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
