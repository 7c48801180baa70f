"""The certificate of a server. When its files change, they are loaded without a restart."""

from __future__ import annotations

import os

from nsqd_py.errors import LayerError
from nsqd_py.net.tls import REQUIRE, StandardServer, TlsFiles, TlsServer
from nsqd_py.net.tls_options import ServerTlsOptions
from nsqd_py.runtime.logs import Log

CHECK_EVERY_S = 2.0

# (modification time in ns, inode, size) of a file; a tool may replace the file, or overwrite it.
_Stamp = tuple[int, int, int]


class CertificateReloader:
    """Reloads a certificate when its files change.

    server  makes the TLS engines of new connections; open connections keep theirs
    """

    def __init__(self, files: TlsFiles, log: Log) -> None:
        """Load the files. Raises OSError if they cannot be used."""
        self._files = files
        self._log = log
        self._stamps = self._read_stamps()
        self.server: TlsServer = _make_server(files)

    def check(self) -> None:
        """Reload the files if they changed."""
        stamps = self._read_stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            self.reload()

    def reload(self) -> None:
        """Load the files; if they cannot be used, log that and keep the old certificate."""
        try:
            self.server = _make_server(self._files)
        except (OSError, LayerError) as error:
            self._log.error("TLS: cannot use the new certificate, the old one stays - %s", error)
        else:
            self._log.info("TLS: certificate loaded from %s", self._files.cert_file)

    def _read_stamps(self) -> list[_Stamp | None]:
        paths = [self._files.cert_file, self._files.key_file, self._files.root_ca_file]
        return [_stamp(path) for path in paths if path]


def _stamp(path: str) -> _Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def keep_certificate(options: ServerTlsOptions, log: Log) -> CertificateReloader | None:
    """Return the certificate of a server; None without TLS. Raises OSError if its files cannot be used."""
    if not options.tls_cert:
        return None
    files = TlsFiles(
        options.tls_cert,
        options.tls_key,
        options.tls_root_ca_file,
        options.tls_client_auth_policy,
        options.tls_min_version,
        options.tls_security_level,
    )
    return CertificateReloader(files, log)


def _make_server(files: TlsFiles) -> TlsServer:
    """Return the maker of TLS engines for the files. Raises OSError (ssl.SSLError is one) if they cannot be used."""
    if files.client_auth_policy == REQUIRE:
        from nsqd_py.net.tls_any_certificate import AnyCertificateServer  # pyOpenSSL is slow to import

        return AnyCertificateServer(files)
    return StandardServer(files)
