"""TLS as a layer of a connection: bytes in and bytes out, no socket. `client.tls` makes those of clients.

Also: TLS that accepts any certificate of a client, and the reloading of a server's certificate.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from nsqd_py.errors import LayerError
from nsqd_py.net import tls_context
from nsqd_py.net.tls_context import advised
from nsqd_py.net.tls_options import ServerTlsOptions
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.private_files import Stamp, stamp_of
from nsqd_py.settings.types import OPENSSL_DEFAULT

# The first byte of a TLS connection, a handshake record. No text protocol begins with it.
_HANDSHAKE = 0x16
_READ_BYTES = 256 * 1024
# Records of one step: a record of a single byte takes 3 us, and 64 KiB hold 2,800 of them.
MOST_RECORDS = 512

# The key exchanges in OpenSSL's names of cipher suites for TLS 1.2 and older.
_EXCHANGES = ("ECDHE-ECDSA", "ECDHE-RSA", "DHE-RSA")

CHECK_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class TlsInfo:
    """The result of a handshake. `common_name` is that of the client's certificate, `names` are all in it."""

    version: str
    cipher: str
    common_name: str = ""
    names: frozenset[str] = frozenset()


def server_context(options: ServerTlsOptions) -> ssl.SSLContext | AnyCertificateContext:
    """Load the files of a server. Raises OSError if they cannot be used."""
    if options.tls_client_auth_policy == "require":
        return AnyCertificateContext(options)
    context: ssl.SSLContext = tls_context.server_context(
        options.tls_cert, options.tls_key, options.tls_security_level
    )
    context.minimum_version = ssl.TLSVersion(options.tls_min_version)
    if options.tls_root_ca_file:
        context.load_verify_locations(cafile=options.tls_root_ca_file)
    if options.tls_client_auth_policy:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def cipher_name(openssl_name: str) -> str:
    """Return the standard name of a cipher suite, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    if not openssl_name or openssl_name.startswith("TLS_"):
        return openssl_name
    for exchange in _EXCHANGES:
        if openssl_name.startswith(exchange + "-"):
            cipher = openssl_name.removeprefix(exchange + "-")
            break
    else:
        exchange = "RSA"
        cipher = openssl_name
    cipher = (
        cipher.replace("AES128", "AES-128")
        .replace("AES256", "AES-256")
        .replace("-POLY1305", "-POLY1305-SHA256")
    )
    if cipher.endswith("-SHA") and "CBC" not in cipher:
        cipher = cipher.replace("-SHA", "-CBC-SHA")
    return f"TLS_{exchange}_WITH_{cipher}".replace("-", "_")


def _common_name(certificate: Any) -> str:
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


def names_in(certificate: Any) -> frozenset[str]:
    """Return the names in a verified certificate, as `ssl` has it: its alternative names, or else its common name.

    Authorities check alternative names; many let whoever asks for a certificate choose the common name (RFC 6125, 6.4.4).
    """
    alternatives = (certificate or {}).get("subjectAltName", ())
    if alternatives:
        return frozenset(name for _, name in alternatives if isinstance(name, str))
    return frozenset({_common_name(certificate)} - {""})


class TlsLayer:
    """One side of a TLS connection, on `ssl.MemoryBIO`s. Data that are sent during the handshake wait for its end.

    is_open  True after the handshake
    """

    __slots__ = ("_incoming", "_outgoing", "_tls", "_waiting", "has_more", "is_open")

    is_secure = True

    def __init__(
        self, context: ssl.SSLContext | AnyCertificateContext, server_name: str | None = None
    ) -> None:
        """Make the side of a client that expects the certificate of `server_name`; if that is None, of a server."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_name is None, server_name)
        self.is_open = False
        self.has_more = False
        self._waiting: list[bytes] = []

    def decode(self, received: bytes) -> bytes:
        """Return decrypted bytes of one step. Raises LayerError."""
        if received:
            self._incoming.write(received)
        parts: list[bytes] = []
        self.has_more = False
        try:
            if not self.is_open:
                self._tls.do_handshake()
                self.is_open = True
                for data in self._waiting:
                    self._tls.write(data)
                self._waiting.clear()
            while part := self._tls.read(_READ_BYTES):
                parts.append(part)
                if len(parts) == MOST_RECORDS:
                    self.has_more = True
                    break
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # all input is read; or the peer has ended the stream, and the socket will report that too
        except ssl.SSLError as error:  # the problem of the certificate if there is one, else OpenSSL's reason
            raise LayerError(
                f"TLS: {advised(getattr(error, 'verify_message', '') or error.reason or error)}"
            ) from error
        return b"".join(parts)

    def encode(self, data: bytes) -> bytes:
        if not self.is_open:
            self._waiting.append(data)
        elif data:
            self._tls.write(data)
        return self._outgoing.read()

    def take_output(self) -> bytes:
        return self._outgoing.read()

    def end(self) -> bytes:
        if self.is_open:
            with suppress(ssl.SSLError):  # OpenSSL reports that the peer has not ended the stream too
                self._tls.unwrap()
        return self._outgoing.read()

    @property
    def info(self) -> TlsInfo | None:
        """The result of the handshake; None before its end."""
        if not self.is_open:
            return None
        cipher = self._tls.cipher()
        certificate = self._tls.getpeercert()
        names: frozenset[str] = frozenset()
        if isinstance(self._tls, ssl.SSLObject):  # the others are not verified
            names = names_in(certificate)
        return TlsInfo(
            (self._tls.version() or "").replace("TLSv", "TLS"),
            cipher_name(cipher[0] if cipher else ""),
            _common_name(certificate),
            names,
        )


class TlsIfAsked:
    """TLS for a peer whose first byte begins a TLS handshake; the bytes of other peers pass unchanged."""

    __slots__ = ("_context", "_is_plain", "_layer", "is_secure")

    def __init__(self, context: ssl.SSLContext | AnyCertificateContext) -> None:
        self._context = context
        self._layer: TlsLayer | None = None
        self._is_plain = False
        self.is_secure = False

    @property
    def is_open(self) -> bool:
        return self._layer is None or self._layer.is_open

    @property
    def has_more(self) -> bool:
        return self._layer is not None and self._layer.has_more

    def decode(self, received: bytes) -> bytes:
        """Return bytes for the parser. Raises LayerError."""
        if self._layer is None:
            if self._is_plain or received[0] != _HANDSHAKE:
                self._is_plain = True
                return received
            self._layer = TlsLayer(self._context)
            self.is_secure = True
        return self._layer.decode(received)

    def encode(self, data: bytes) -> bytes:
        if self._layer is not None:
            return self._layer.encode(data)
        return data

    def take_output(self) -> bytes:
        if self._layer is not None:
            return self._layer.take_output()
        return b""

    def end(self) -> bytes:
        if self._layer is not None:
            return self._layer.end()
        return b""


# ---- TLS that requires a certificate of clients and accepts any: `ssl` refuses those that no trusted authority has signed.


class AnyCertificateContext:
    """As the `ssl.SSLContext` of a server, on pyOpenSSL."""

    def __init__(self, options: ServerTlsOptions) -> None:
        """Load the files. Raises OSError if they cannot be used."""
        from OpenSSL import SSL  # it takes 40 ms

        self.library = SSL
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        self.context = context
        if options.tls_security_level != OPENSSL_DEFAULT:
            context.set_cipher_list(tls_context.cipher_list(options.tls_security_level).encode())
        context.set_min_proto_version(options.tls_min_version)
        try:
            context.use_certificate_chain_file(options.tls_cert)
            context.use_privatekey_file(options.tls_key)
            if options.tls_root_ca_file:
                context.load_verify_locations(options.tls_root_ca_file)
        except SSL.Error as error:
            raise OSError(
                f"cannot use {options.tls_cert} with {options.tls_key}: {advised(error)}"
            ) from error
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, lambda *_: True)

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *_: object) -> _AnyCertificateObject:
        return _AnyCertificateObject(self, incoming, outgoing)


class _AnyCertificateObject:
    """As an `ssl.SSLObject`, with its exceptions."""

    def __init__(
        self, context: AnyCertificateContext, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self._library = context.library
        self._incoming = incoming
        self._outgoing = outgoing
        self._connection = context.library.Connection(context.context, None)
        self._connection.set_accept_state()

    def _run(self, step: Callable[..., Any], *args: object) -> Any:
        received = self._incoming.read()
        if received:
            self._connection.bio_write(received)
        try:
            return step(*args)
        except self._library.WantReadError:
            raise ssl.SSLWantReadError from None
        except self._library.ZeroReturnError:
            raise ssl.SSLZeroReturnError from None
        except self._library.Error as error:
            raise ssl.SSLError(str(error)) from error
        finally:
            with suppress(self._library.WantReadError):  # all output is read
                while True:
                    self._outgoing.write(self._connection.bio_read(_READ_BYTES))

    def do_handshake(self) -> None:
        self._run(self._connection.do_handshake)

    def read(self, size: int) -> bytes:
        # A record; pyOpenSSL allocates all of it.
        return bytes(self._run(self._connection.recv, min(size, 16 * 1024)))

    def write(self, data: bytes) -> None:
        while data:
            data = data[self._run(self._connection.send, data) :]

    def unwrap(self) -> None:
        self._run(self._connection.shutdown)

    def version(self) -> str:
        return str(self._connection.get_protocol_version_name())

    def cipher(self) -> tuple[str]:
        return (self._connection.get_cipher_name() or "",)

    def getpeercert(self) -> dict[str, Any]:
        """Return only the common name."""
        certificate = self._connection.get_peer_certificate()
        name = None
        if certificate is not None:
            name = certificate.get_subject().CN
        if name:
            return {"subject": ((("commonName", name),),)}
        return {}


# ---- The certificate of a server. When its files change, they are loaded without a restart.


class CertificateReloader:
    """Reloads a certificate when its files change.

    context  that of new connections; open connections keep theirs
    ends_s   end of the validity of the certificate, in s since the epoch; 0 if it cannot be read
    """

    def __init__(self, options: ServerTlsOptions, log: Log) -> None:
        """Load the files. Raises OSError if they cannot be used."""
        self._options = options
        self._log = log
        self._stamps = self._read_stamps()
        self.context = server_context(options)
        self.ends_s = tls_context.certificate_end_s(options.tls_cert)

    def check(self) -> None:
        """Reload the files if they changed."""
        stamps = self._read_stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            self.reload()

    def reload(self) -> None:
        """Load the files; if they cannot be used, log that and keep the old certificate."""
        try:
            self.context = server_context(self._options)
        except OSError as error:
            self._log.error("TLS: cannot use the new certificate, the old one stays - %s", error)
        else:
            self.ends_s = tls_context.certificate_end_s(self._options.tls_cert)
            self._log.info("TLS: certificate loaded from %s", self._options.tls_cert)

    def _read_stamps(self) -> list[Stamp]:
        options = self._options
        return [
            stamp_of(path) for path in (options.tls_cert, options.tls_key, options.tls_root_ca_file) if path
        ]
