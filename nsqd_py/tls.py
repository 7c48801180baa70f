"""TLS on the side of the server, as a layer of a `Stream`: no socket in here, bytes in and bytes out."""

from __future__ import annotations

import ssl
from contextlib import suppress
from dataclasses import dataclass

from nsqd_py.transport import LayerError

# A TLS connection begins with a handshake record, and no text protocol with this byte.
_HANDSHAKE = 0x16
_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What a server needs to know for TLS.

    client_auth_policy  "", or "require-verify": clients show a certificate that is signed by `root_ca_file`
    min_version         number of the lowest version of the protocol, as `ssl.TLSVersion` has it
    """

    cert_file: str
    key_file: str
    root_ca_file: str = ""
    client_auth_policy: str = ""
    min_version: int = 0


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Raises OSError (ssl.SSLError is one) for files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if files.min_version:
        context.minimum_version = ssl.TLSVersion(files.min_version)
    # With an empty password, a key that needs one fails instead of asking on the terminal.
    context.load_cert_chain(files.cert_file, files.key_file, password="")
    if files.root_ca_file:
        context.load_verify_locations(cafile=files.root_ca_file)
    if files.client_auth_policy:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TlsLayer:
    """One server's side of TLS. What is sent before the handshake is over waits for its end."""

    __slots__ = ("_incoming", "_is_open", "_outgoing", "_tls", "_waiting")

    is_secure = True

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False
        self._waiting: list[bytes] = []

    def decode(self, received: bytes) -> bytes:
        """What the peer sent, as far as it is complete. Raises LayerError."""
        self._incoming.write(received)
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
                for data in self._waiting:
                    self._tls.write(data)
                self._waiting.clear()
            return self._read()
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLError as error:
            raise LayerError(f"TLS: {error.reason or error}") from error

    def _read(self) -> bytes:
        parts = []
        # ZeroReturn: the peer said that nothing follows; the socket will say so too.
        with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while part := self._tls.read(_READ_BYTES):
                parts.append(part)
        return b"".join(parts)

    def encode(self, data: bytes) -> bytes:
        if not self._is_open:
            self._waiting.append(data)
        elif data:
            self._tls.write(data)
        return self._outgoing.read()

    def take_output(self) -> bytes:
        return self._outgoing.read()

    def end(self) -> bytes:
        if self._is_open:
            with suppress(ssl.SSLError):  # it wants to see the peer's end too
                self._tls.unwrap()
        return self._outgoing.read()


class TlsIfAsked:
    """TLS for a peer whose first byte asks for it, and nothing in between for others."""

    __slots__ = ("_context", "_layer", "_is_plain", "is_secure")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._layer: TlsLayer | None = None
        self._is_plain = False
        self.is_secure = False

    def decode(self, received: bytes) -> bytes:
        """As `TlsLayer.decode`. Raises LayerError."""
        if self._layer is None:
            if self._is_plain or received[0] != _HANDSHAKE:
                self._is_plain = True
                return received
            self._layer = TlsLayer(self._context)
            self.is_secure = True
        return self._layer.decode(received)

    def encode(self, data: bytes) -> bytes:
        return self._layer.encode(data) if self._layer is not None else data

    def take_output(self) -> bytes:
        return self._layer.take_output() if self._layer is not None else b""

    def end(self) -> bytes:
        return self._layer.end() if self._layer is not None else b""
