"""A certificate for the servers of one bench, made when the first of them asks for it."""

import functools
import tempfile
from pathlib import Path


@functools.cache
def flags() -> list[str]:
    """Flags with which a server speaks TLS; its certificate is for localhost, and nobody verifies it."""
    import trustme  # only for the scenarios with TLS

    # Kept until the process ends: the object of a temporary directory would remove it when it goes.
    directory = Path(_directory().name)
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_pem.write_to_path(str(directory / "server.key"))
    certificate.cert_chain_pems[0].write_to_path(str(directory / "server.pem"))
    return [f"--tls-cert={directory / 'server.pem'}", f"--tls-key={directory / 'server.key'}"]


@functools.cache
def _directory() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="nsqd-bench-tls-")
