"""Snappy as a layer of a connection.

The format is https://github.com/google/snappy/blob/main/framing_format.txt: chunks of [1-byte type][3-byte size][data], the size
little-endian; data of the two types that carry something begin with the masked crc32c of what they carry.
"""

from __future__ import annotations

import cramjam
import google_crc32c

from nsqd_py.errors import LayerError
from nsqd_py.net.layers import STEP_BYTES, Compression

# Chunks of one step: an empty one takes 1 us, and 64 KiB hold 16,000 of them.
_MOST_CHUNKS = 1024

_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_MAGIC = _IDENTIFIER[4:]
_COMPRESSED = 0x00
_PLAIN = 0x01
_FIRST_SKIPPABLE = 0x80
_IDENTIFIER_TYPE = 0xFF
_HEADER_BYTES = 4
_CRC_BYTES = 4
_CHUNK_BYTES = 65536  # the most uncompressed data in a chunk
_LARGEST_CHUNK = _CRC_BYTES + 76490  # snappy's bound for 64 KiB that do not compress
_WORTH_IT = 7 / 8  # a chunk that does not shrink to less is sent uncompressed


def masked_crc32c(data: bytes) -> bytes:
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(_CRC_BYTES, "little")


class SnappyLayer(Compression):
    """Snappy in the framing format. google_crc32c computes the checksums with instructions of the processor: 40 kB take
    6 us, and 54 us with a library that frames.
    """

    __slots__ = ("_has_begun", "_input", "_is_identified", "_skip_bytes", "has_more")

    def __init__(self) -> None:
        self._input = b""
        self._is_identified = False
        self._has_begun = False
        self._skip_bytes = 0  # rest of a chunk without data; it may be 16 MB long, and is dropped
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
        if len(parts) == 1:
            return parts[0]
        return b"".join(parts)

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
        if kind == _COMPRESSED:
            carried = self._decompressed(data[_CRC_BYTES:])
        else:
            carried = data[_CRC_BYTES:]
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
                kind = _PLAIN
                block = chunk
            parts.append((kind | len(block) + _CRC_BYTES << 8).to_bytes(_HEADER_BYTES, "little"))
            parts.append(masked_crc32c(chunk))
            parts.append(block)
        return b"".join(parts)
