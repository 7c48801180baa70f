"""Layers between the socket and the protocol of a connection: TLS, compression, or compression on TLS."""

from __future__ import annotations

import zlib
from typing import Any, Protocol

from nsqd_py.errors import LayerError

cramjam: Any
google_crc32c: Any
try:
    import cramjam
    import google_crc32c
except ModuleNotFoundError:  # a client that does not compress works without them
    cramjam = google_crc32c = None


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
        """Return the bytes that tell the peer that no more data follow."""


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
        data = self._lower.decode(received) if received or self._lower.has_more else b""
        return self._upper.decode(data) if data or self._upper.has_more else b""

    def encode(self, data: bytes) -> bytes:
        return self._lower.encode(self._upper.encode(data))

    def take_output(self) -> bytes:
        return self._lower.take_output()

    def end(self) -> bytes:
        last = self._upper.end()
        return (self._lower.encode(last) if last else b"") + self._lower.end()


# ---- Compression on a connection, as layers of a `Stream`: bytes in and bytes out.


class _Compression:
    """A layer that has no handshake and sends nothing by itself."""

    __slots__ = ()

    is_secure = False
    is_open = True

    def take_output(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""


STEP_BYTES = 256 * 1024
# Chunks of one step: an empty one takes 1 us, and 64 KiB hold 16,000 of them.
_MOST_CHUNKS = 1024
# Input of one step of deflate: blocks that consist of little more than code tables take 0.1 us a byte.
_MOST_INPUT_BYTES = 32 * 1024

# ---- snappy
# https://github.com/google/snappy/blob/main/framing_format.txt: chunks of [1-byte type][3-byte size][data], the size
# little-endian; data of the two types that carry something begin with the masked crc32c of what they carry.

_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_MAGIC = _IDENTIFIER[4:]
_COMPRESSED, _PLAIN, _FIRST_SKIPPABLE, _IDENTIFIER_TYPE = 0x00, 0x01, 0x80, 0xFF
_HEADER_BYTES = 4
_CRC_BYTES = 4
_CHUNK_BYTES = 65536  # the most uncompressed data in a chunk
_LARGEST_CHUNK = _CRC_BYTES + 76490  # snappy's bound for 64 KiB that do not compress
_WORTH_IT = 7 / 8  # a chunk that does not shrink to less is sent uncompressed


def masked_crc32c(data: bytes) -> bytes:
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(_CRC_BYTES, "little")


class SnappyLayer(_Compression):
    """Snappy in the framing format. google_crc32c computes the checksums with instructions of the processor: 40 kB take
    6 us, and 54 us with a library that frames.
    """

    __slots__ = ("_has_begun", "_input", "_is_identified", "_skip_bytes", "has_more")

    def __init__(self) -> None:
        """Raises ModuleNotFoundError if the packages for snappy are not installed."""
        if cramjam is None:
            raise ModuleNotFoundError("No module named 'cramjam' or 'google_crc32c'")
        self._input = b""
        self._is_identified = False
        self._has_begun = False
        self._skip_bytes = 0  # rest of a chunk without data; it may be 16 MB long, and is not kept
        self.has_more = False

    def decode(self, received: bytes) -> bytes:
        """Raises LayerError for input that is not snappy."""
        if self._skip_bytes:
            skipped = min(self._skip_bytes, len(received))
            self._skip_bytes -= skipped
            received = received[skipped:]
        data = self._input + received if self._input else received
        parts: list[bytes] = []
        size_bytes = 0
        position = 0
        chunks = 0
        while position + _HEADER_BYTES <= len(data) and size_bytes < STEP_BYTES and chunks < _MOST_CHUNKS:
            chunks += 1
            kind = data[position]
            size = int.from_bytes(data[position + 1 : position + _HEADER_BYTES], "little")
            self._check(kind, size)
            start = position + _HEADER_BYTES
            if start + size > len(data):
                if _FIRST_SKIPPABLE <= kind < _IDENTIFIER_TYPE:
                    self._skip_bytes = start + size - len(data)
                    position = len(data)
                break
            position = start + size
            carried = self._carried(kind, data[start:position])
            size_bytes += len(carried)
            parts.append(carried)
        self._input = data[position:]
        self.has_more = size_bytes >= STEP_BYTES or chunks == _MOST_CHUNKS
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check(self, kind: int, size: int) -> None:
        """Raise LayerError for a wrong chunk header, before the chunk's data have arrived."""
        if not self._is_identified and kind != _IDENTIFIER_TYPE:
            raise LayerError("snappy: the stream has no identifier")
        if kind in (_COMPRESSED, _PLAIN):
            if not _CRC_BYTES <= size <= _LARGEST_CHUNK:
                raise LayerError(f"snappy: a chunk of {size} bytes")
        elif kind < _FIRST_SKIPPABLE:
            raise LayerError(f"snappy: a chunk of unknown type {kind}")
        elif kind == _IDENTIFIER_TYPE and size != len(_MAGIC):
            raise LayerError("snappy: another identifier")

    def _carried(self, kind: int, data: bytes) -> bytes:
        if kind == _IDENTIFIER_TYPE:
            if data != _MAGIC:
                raise LayerError("snappy: another identifier")
            self._is_identified = True
            return b""
        if kind >= _FIRST_SKIPPABLE:
            return b""
        carried = self._decompressed(data[_CRC_BYTES:]) if kind == _COMPRESSED else data[_CRC_BYTES:]
        if len(carried) > _CHUNK_BYTES:
            raise LayerError("snappy: a chunk carries too much")
        if masked_crc32c(carried) != data[:_CRC_BYTES]:
            raise LayerError("snappy: a checksum is wrong")
        return carried

    def _decompressed(self, block: bytes) -> bytes:
        try:
            if cramjam.snappy.decompress_raw_len(block) > _CHUNK_BYTES:
                raise LayerError("snappy: a chunk carries too much")
            return bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise LayerError(f"snappy: {error}") from error

    def encode(self, data: bytes) -> bytes:
        parts = []
        if not self._has_begun:
            self._has_begun = True
            parts.append(_IDENTIFIER)
        for start in range(0, len(data), _CHUNK_BYTES):
            chunk = data[start : start + _CHUNK_BYTES]
            block = bytes(cramjam.snappy.compress_raw(chunk))
            kind = _COMPRESSED
            if len(block) >= len(chunk) * _WORTH_IT:
                kind, block = _PLAIN, chunk
            parts.append((kind | len(block) + _CRC_BYTES << 8).to_bytes(_HEADER_BYTES, "little"))
            parts.append(masked_crc32c(chunk))
            parts.append(block)
        return b"".join(parts)


# ---- deflate


class DeflateLayer(_Compression):
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
