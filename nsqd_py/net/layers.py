"""Layers between the socket and the protocol of a connection: TLS, compression, or compression on TLS."""

from __future__ import annotations

from typing import Protocol


class Layer(Protocol):
    """Converts bytes of the socket to bytes of the protocol, and back.

    is_secure  True if nobody on the network can read or change the bytes
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
