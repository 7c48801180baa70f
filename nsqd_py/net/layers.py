"""Layers between the socket and the protocol of a connection: TLS, compression, or compression on TLS; deflate."""

from __future__ import annotations

import zlib
from typing import Protocol

from nsqd_py.errors import LayerError

STEP_BYTES = 256 * 1024
# Input of one step of deflate: blocks that consist of little more than code tables take 0.1 us a byte.
_MOST_INPUT_BYTES = 32 * 1024


class Layer(Protocol):
    """Converts bytes of the socket to bytes of the protocol, and back.

    is_secure  True if no one on the network can read or change the bytes
    is_open    False while a handshake has to be completed before the peer's first bytes
    has_more   True if `decode(b"")` returns more of the input
    """

    @property
    def is_secure(self) -> bool: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def has_more(self) -> bool: ...

    def decode(self, received: bytes) -> bytes:
        """Return bytes for the parser, at most a few MB at a time; they may be empty. Raises LayerError."""

    def encode(self, data: bytes) -> bytes:
        """Return bytes for the socket; empty while the layer has to wait for the peer."""

    def take_output(self) -> bytes:
        """Return bytes that the layer itself has to send: a handshake, and data that waited for its end."""

    def end(self) -> bytes:
        """Return the bytes that say to the peer that no more data follow."""


class Stacked:
    """A layer on top of another: received bytes pass `lower` first, sent bytes pass `upper` first."""

    __slots__ = ("_lower", "_upper", "is_secure")

    def __init__(self, lower: Layer, upper: Layer) -> None:
        self._lower = lower
        self._upper = upper
        self.is_secure = lower.is_secure

    @property
    def is_open(self) -> bool:
        return self._lower.is_open and self._upper.is_open

    @property
    def has_more(self) -> bool:
        return self._upper.has_more or self._lower.has_more

    def decode(self, received: bytes) -> bytes:
        data = b""
        if received or self._lower.has_more:
            data = self._lower.decode(received)
        if data or self._upper.has_more:
            return self._upper.decode(data)
        return b""

    def encode(self, data: bytes) -> bytes:
        return self._lower.encode(self._upper.encode(data))

    def take_output(self) -> bytes:
        return self._lower.take_output()

    def end(self) -> bytes:
        last = self._upper.end()
        end = self._lower.encode(last) if last else b""
        return end + self._lower.end()


# ---- Compression on a connection, as layers of a `Stream`: bytes in and bytes out.


class Compression:
    """A layer that has no handshake and sends nothing by itself."""

    __slots__ = ()

    is_secure = False
    is_open = True

    def take_output(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""


class DeflateLayer(Compression):
    """Raw deflate (RFC 1951), flushed after each write, so that no data wait in an incomplete block."""

    __slots__ = ("_compressor", "_decompressor", "_input", "has_more")

    def __init__(self, level: int) -> None:
        self._compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
        self._input = b""
        self.has_more = False

    def decode(self, received: bytes) -> bytes:
        """Raises LayerError for input that is not deflate."""
        if self._decompressor.eof:
            raise LayerError("deflate: the stream has ended")
        received = self._input + received
        try:
            data = self._decompressor.decompress(received[:_MOST_INPUT_BYTES], STEP_BYTES)
        except zlib.error as error:
            raise LayerError(f"deflate: {error}") from error
        self._input = self._decompressor.unconsumed_tail + received[_MOST_INPUT_BYTES:]
        # If the output fills the step, zlib may hold more output that needs no more input.
        self.has_more = (bool(self._input) or len(data) == STEP_BYTES) and not self._decompressor.eof
        return data

    def encode(self, data: bytes) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._compressor.flush()
