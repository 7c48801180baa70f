"""The test client of `wire`, with TLS and compression as other libraries do them."""

from __future__ import annotations

import ssl
import zlib
from typing import Any

import snappy

from tests.support.wire import OK, Client, Closed


class TransportClient(Client):
    """A client that asks for TLS or compression, and speaks it then."""

    def __init__(self, port: int, **settings: Any) -> None:
        self._compress: Any = bytes
        self._decompress: Any = bytes
        super().__init__(port, **settings)  # it sends the magic

    def upgrade(self, context: ssl.SSLContext | None = None, **fields: Any) -> dict[str, Any]:
        """IDENTIFY with these fields, and what they lead to; the negotiated settings."""
        negotiated = self.identify(tls_v1=context is not None, **fields)
        if negotiated["tls_v1"]:
            self.start_tls(context)
        if negotiated["snappy"]:
            self.start_snappy()
        if negotiated["deflate"]:
            self.start_deflate(negotiated["deflate_level"])
        return negotiated

    def start_tls(self, context: ssl.SSLContext) -> None:
        """TLS from here on. Raises ssl.SSLError, or `Closed` where nsqd refuses."""
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        except ConnectionResetError as error:
            raise Closed from error
        assert self.frame() == OK

    def start_snappy(self) -> None:
        self._compress = snappy.StreamCompressor().add_chunk
        self._begin(snappy.StreamDecompressor().decompress)

    def start_deflate(self, level: int = 6) -> None:
        compressor = zlib.compressobj(level, zlib.DEFLATED, -15)
        self._compress = lambda data: compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)
        self._begin(zlib.decompressobj(-15).decompress)

    def _begin(self, decompress: Any) -> None:
        """What has come behind the negotiation is compressed already, an OK first."""
        self._decompress = decompress
        if self._input:
            self._input[:] = decompress(bytes(self._input))
        assert self.frame() == OK

    @property
    def tls_version(self) -> str | None:
        return self.socket.version() if isinstance(self.socket, ssl.SSLSocket) else None

    def send_raw(self, data: bytes) -> None:
        """As it is, under whatever was agreed."""
        super().send(data)

    def send(self, *parts: bytes) -> None:
        super().send(self._compress(b"".join(parts)))

    def _receive(self, deadline: float) -> None:
        while not (data := self._decompress(self._received(deadline))):
            pass
        self._input += data
