"""TLS as a layer of a connection: bytes in and bytes out, no socket. `client.tls` makes the engines of clients."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from nsqd_py.errors import LayerError
from nsqd_py.net.tls_context import OPENSSL_DEFAULT, advised, cipher_list, set_level
from nsqd_py.net.tls_options import ServerTlsOptions
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.private_files import Stamp, stamp_of

REQUIRE = "require"

# The first byte of a TLS connection, a handshake record. No text protocol begins with it.
_HANDSHAKE = 0x16
_READ_BYTES = 256 * 1024
# Records of one step: a record of a single byte takes 3 us, and 64 KiB hold 2,800 of them.
MOST_RECORDS = 512

# The key exchanges in OpenSSL's names of cipher suites for TLS 1.2 and older.
_EXCHANGES = ("ECDHE-ECDSA", "ECDHE-RSA", "DHE-RSA")


@dataclass(frozen=True, slots=True)
class TlsInfo:
    """The result of a handshake. `common_name` is that of the client's certificate, `names` are all in it, if it is
    verified.

    `negotiated_protocol_is_mutual` is always true, as in Go's TLS.
    """

    version: str
    cipher: str
    common_name: str = ""
    negotiated_protocol: str = ""
    negotiated_protocol_is_mutual: bool = True
    names: frozenset[str] = frozenset()


# Makes the engine of a new connection, which is one side of it, in memory.
MakeEngine = Callable[[], "StandardEngine | AnyCertificateEngine"]


def standard_engines(options: ServerTlsOptions) -> MakeEngine:
    """Load the files of a server. Raises OSError if they cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    set_level(context, options.tls_security_level)
    context.minimum_version = ssl.TLSVersion(options.tls_min_version)
    # With an empty password, a key that needs one fails instead of asking on the terminal.
    context.load_cert_chain(options.tls_cert, options.tls_key, password="")
    if options.tls_root_ca_file:
        context.load_verify_locations(cafile=options.tls_root_ca_file)
    if options.tls_client_auth_policy:
        context.verify_mode = ssl.CERT_REQUIRED
    return partial(StandardEngine, context)


class StandardEngine:
    """One side of one TLS connection, on `ssl.MemoryBIO`s."""

    __slots__ = ("_incoming", "_outgoing", "_tls")

    def __init__(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        """Make the engine of a client that expects the certificate of `server_name`; if that is None, of a server."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        is_server = server_name is None
        self._tls = context.wrap_bio(self._incoming, self._outgoing, is_server, server_name)

    def write_received(self, data: bytes) -> None:
        """Add encrypted bytes from the peer."""
        self._incoming.write(data)

    def do_handshake(self) -> bool:
        """Continue the handshake; return True when it is complete. Raises LayerError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise LayerError(f"TLS: {advised(_reason(error))}") from error
        return True

    def read(self) -> tuple[bytes, bool]:
        """Return (decrypted bytes of one step, True if there are more). Raises LayerError."""
        parts: list[bytes] = []
        try:
            while part := self._tls.read(_READ_BYTES):
                parts.append(part)
                if len(parts) == MOST_RECORDS:
                    return b"".join(parts), True
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # all input is read; or the peer has ended the stream, and the socket will report that too
        except ssl.SSLError as error:
            raise LayerError(f"TLS: {_reason(error)}") from error
        return b"".join(parts), False

    def write(self, data: bytes) -> None:
        self._tls.write(data)

    def take_output(self) -> bytes:
        """Return the encrypted bytes for the peer."""
        return self._outgoing.read()

    def end(self) -> None:
        """Tell the peer that no more data follow."""
        with suppress(ssl.SSLError):  # OpenSSL reports that the peer has not ended the stream too
            self._tls.unwrap()

    def info(self) -> TlsInfo:
        cipher, certificate = self._tls.cipher(), self._tls.getpeercert()
        return TlsInfo(
            (self._tls.version() or "").replace("TLSv", "TLS"),
            cipher_name(cipher[0] if cipher else ""),
            _common_name(certificate),
            names=names_in(certificate),
        )


def _reason(error: ssl.SSLError) -> object:
    """Return the problem of the certificate if there is one, else OpenSSL's reason."""
    return getattr(error, "verify_message", "") or error.reason or error


def cipher_name(openssl_name: str) -> str:
    """Return the standard name of a cipher suite, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    if not openssl_name or openssl_name.startswith("TLS_"):
        return openssl_name
    for exchange in _EXCHANGES:
        if openssl_name.startswith(exchange + "-"):
            cipher = openssl_name.removeprefix(exchange + "-")
            break
    else:
        exchange, cipher = "RSA", openssl_name
    cipher = cipher.replace("AES128", "AES-128").replace("AES256", "AES-256").replace("-POLY1305", "-POLY1305-SHA256")
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
    """Return the subject alternative names and the common name in a verified certificate, as `ssl` has it."""
    found = {value for _, value in (certificate or {}).get("subjectAltName", ())}
    return frozenset({name for name in found if isinstance(name, str)} | {_common_name(certificate)} - {""})


class TlsLayer:
    """One side of a TLS connection. Data that are sent during the handshake wait for its end.

    is_open  True after the handshake
    """

    __slots__ = ("_engine", "_waiting", "has_more", "is_open")

    is_secure = True

    def __init__(self, engine: StandardEngine | AnyCertificateEngine) -> None:
        self._engine = engine
        self.is_open = False
        self.has_more = False
        self._waiting: list[bytes] = []

    def decode(self, received: bytes) -> bytes:
        """Return decrypted bytes. Raises LayerError."""
        engine = self._engine
        if received:
            engine.write_received(received)
        if not self.is_open:
            if not engine.do_handshake():
                return b""
            self.is_open = True
            for data in self._waiting:
                engine.write(data)
            self._waiting.clear()
        data, self.has_more = engine.read()
        return data

    def encode(self, data: bytes) -> bytes:
        if not self.is_open:
            self._waiting.append(data)
        elif data:
            self._engine.write(data)
        return self._engine.take_output()

    def take_output(self) -> bytes:
        return self._engine.take_output()

    def end(self) -> bytes:
        if self.is_open:
            self._engine.end()
        return self._engine.take_output()

    @property
    def info(self) -> TlsInfo | None:
        """The result of the handshake; None before its end."""
        return self._engine.info() if self.is_open else None


class TlsIfAsked:
    """TLS for a peer whose first byte begins a TLS handshake; the bytes of other peers pass unchanged."""

    __slots__ = ("_is_plain", "_layer", "_make_engine", "is_secure")

    def __init__(self, make_engine: MakeEngine) -> None:
        self._make_engine = make_engine
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
            self._layer = TlsLayer(self._make_engine())
            self.is_secure = True
        return self._layer.decode(received)

    def encode(self, data: bytes) -> bytes:
        return self._layer.encode(data) if self._layer is not None else data

    def take_output(self) -> bytes:
        return self._layer.take_output() if self._layer is not None else b""

    def end(self) -> bytes:
        return self._layer.end() if self._layer is not None else b""


# ---- The certificate of a server. When its files change, they are loaded without a restart.


CHECK_EVERY_S = 2.0


class CertificateReloader:
    """Reloads a certificate when its files change.

    engine  makes the TLS engines of new connections; open connections keep theirs
    """

    def __init__(self, options: ServerTlsOptions, log: Log) -> None:
        """Load the files. Raises OSError if they cannot be used."""
        self._options = options
        self._log = log
        self._stamps = self._read_stamps()
        self.engine = _engines(options)

    def check(self) -> None:
        """Reload the files if they changed."""
        stamps = self._read_stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            self.reload()

    def reload(self) -> None:
        """Load the files; if they cannot be used, log that and keep the old certificate."""
        try:
            self.engine = _engines(self._options)
        except (OSError, LayerError) as error:
            self._log.error("TLS: cannot use the new certificate, the old one stays - %s", error)
        else:
            self._log.info("TLS: certificate loaded from %s", self._options.tls_cert)

    def _read_stamps(self) -> list[Stamp]:
        options = self._options
        return [stamp_of(path) for path in (options.tls_cert, options.tls_key, options.tls_root_ca_file) if path]


def _engines(options: ServerTlsOptions) -> MakeEngine:
    return any_certificate_engines(options) if options.tls_client_auth_policy == REQUIRE else standard_engines(options)


# ---- TLS that requires a certificate of clients and accepts any (`--tls-client-auth-policy=require`)
#
# It needs pyOpenSSL: the standard library refuses certificates that no trusted authority has signed.

_ANY_READ_BYTES = 16 * 1024
_BIO_BYTES = 64 * 1024


def any_certificate_engines(options: ServerTlsOptions) -> MakeEngine:
    """Load the files of a server. Raises OSError if they cannot be used."""
    from OpenSSL import SSL  # it takes 40 ms

    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    if options.tls_security_level != OPENSSL_DEFAULT:
        context.set_cipher_list(cipher_list(options.tls_security_level).encode())
    context.set_min_proto_version(options.tls_min_version)
    try:
        context.use_certificate_chain_file(options.tls_cert)
        context.use_privatekey_file(options.tls_key)
        if options.tls_root_ca_file:
            context.load_verify_locations(options.tls_root_ca_file)
    except SSL.Error as error:
        raise OSError(f"cannot use {options.tls_cert} with {options.tls_key}: {advised(error)}") from error
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _accept_any)
    return partial(AnyCertificateEngine, SSL, context)


def _accept_any(connection: Any, certificate: Any, error: int, depth: int, is_good: int) -> bool:
    return True


class AnyCertificateEngine:
    """As `StandardEngine`, on an in-memory connection of pyOpenSSL."""

    __slots__ = ("_connection", "_ssl")

    def __init__(self, library: Any, context: Any) -> None:
        self._ssl = library
        self._connection = library.Connection(context, None)
        self._connection.set_accept_state()

    def write_received(self, data: bytes) -> None:
        self._connection.bio_write(data)

    def do_handshake(self) -> bool:
        try:
            self._connection.do_handshake()
        except self._ssl.WantReadError:
            return False
        except self._ssl.Error as error:
            raise LayerError(f"TLS: {advised(error)}") from error
        return True

    def read(self) -> tuple[bytes, bool]:
        parts: list[bytes] = []
        try:
            while part := self._connection.recv(_ANY_READ_BYTES):
                parts.append(part)
                if len(parts) == MOST_RECORDS:
                    return b"".join(parts), True
        except (self._ssl.WantReadError, self._ssl.ZeroReturnError):
            pass  # all input is read; or the peer has ended the stream, and the socket will report that too
        except self._ssl.Error as error:
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
        except self._ssl.WantReadError:
            pass  # all output is read
        return b"".join(parts)

    def end(self) -> None:
        with suppress(self._ssl.Error):  # the peer is gone already
            self._connection.shutdown()

    def info(self) -> TlsInfo:
        connection = self._connection
        certificate = connection.get_peer_certificate()
        return TlsInfo(
            connection.get_protocol_version_name().replace("TLSv", "TLS"),
            cipher_name(connection.get_cipher_name() or ""),
            (certificate.get_subject().CN or "") if certificate is not None else "",
        )
