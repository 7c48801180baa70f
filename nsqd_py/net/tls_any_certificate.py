"""TLS that requires a certificate of clients and accepts any (`--tls-client-auth-policy=require`).

It needs pyOpenSSL: the standard library refuses certificates that no trusted authority has signed.
"""

from __future__ import annotations

from contextlib import suppress

from OpenSSL import SSL, crypto

from nsqd_py.errors import LayerError
from nsqd_py.net.tls import MOST_RECORDS, Engine, TlsFiles, TlsInfo, cipher_name
from nsqd_py.net.tls_context import OPENSSL_DEFAULT, advised, cipher_list

_READ_BYTES = 16 * 1024
_BIO_BYTES = 64 * 1024


class AnyCertificateServer:
    """Makes the TLS engines of a server with the policy "require"."""

    def __init__(self, files: TlsFiles) -> None:
        """Load the files. Raises OSError if they cannot be used."""
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        if files.level != OPENSSL_DEFAULT:
            context.set_cipher_list(cipher_list(files.level).encode())
        if files.min_version:
            context.set_min_proto_version(files.min_version)
        try:
            context.use_certificate_chain_file(files.cert_file)
            context.use_privatekey_file(files.key_file)
            if files.root_ca_file:
                context.load_verify_locations(files.root_ca_file)
        except SSL.Error as error:
            raise OSError(f"cannot use {files.cert_file} with {files.key_file}: {advised(error)}") from error
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _accept_any)
        self._context = context

    def engine(self) -> Engine:
        return AnyCertificateEngine(self._context)


def _accept_any(connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, is_good: int) -> bool:
    return True


class AnyCertificateEngine:
    """An `Engine` on an in-memory connection of pyOpenSSL."""

    __slots__ = ("_connection",)

    def __init__(self, context: SSL.Context) -> None:
        self._connection = SSL.Connection(context, None)
        self._connection.set_accept_state()

    def write_received(self, data: bytes) -> None:
        self._connection.bio_write(data)

    def do_handshake(self) -> bool:
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            return False
        except SSL.Error as error:
            raise LayerError(f"TLS: {advised(error)}") from error
        return True

    def read(self) -> tuple[bytes, bool]:
        parts: list[bytes] = []
        try:
            while part := self._connection.recv(_READ_BYTES):
                parts.append(part)
                if len(parts) == MOST_RECORDS:
                    return b"".join(parts), True
        except (SSL.WantReadError, SSL.ZeroReturnError):
            pass  # all input is read; or the peer has ended the stream, and the socket will report that too
        except SSL.Error as error:
            raise LayerError(f"TLS: {error}") from error
        return b"".join(parts), False

    def write(self, data: bytes) -> None:
        while data:
            data = data[self._connection.send(data) :]

    def take_output(self) -> bytes:
        parts = []
        try:
            while part := self._connection.bio_read(_BIO_BYTES):
                parts.append(part)
        except SSL.WantReadError:
            pass  # all output is read
        return b"".join(parts)

    def end(self) -> None:
        with suppress(SSL.Error):  # the peer is gone already
            self._connection.shutdown()

    def info(self) -> TlsInfo:
        connection = self._connection
        certificate = connection.get_peer_certificate()
        return TlsInfo(
            connection.get_protocol_version_name().replace("TLSv", "TLS"),
            cipher_name(connection.get_cipher_name() or ""),
            (certificate.get_subject().CN or "") if certificate is not None else "",
        )
