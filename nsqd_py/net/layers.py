"""What may lie between the socket and the protocol on a connection: TLS, compression, one on the other."""

from __future__ import annotations

from typing import Protocol


class Layer(Protocol):
    """What turns the bytes of the socket into those of the protocol, and back.

    is_secure  nobody on the way can read or change what passes
    has_more   `decode(b"")` gives more of what has arrived
    """

    @property
    def is_secure(self) -> bool: ...

    @property
    def has_more(self) -> bool: ...

    def decode(self, received: bytes) -> bytes:
        """The bytes for the parser, at most a few MB at a time; may be empty. Raises LayerError."""

    def encode(self, data: bytes) -> bytes:
        """The bytes for the socket; empty while they have to wait for the peer."""

    def take_output(self) -> bytes:
        """What the layer itself has to send: a handshake, and what waited for its end."""

    def end(self) -> bytes:
        """What says to the peer that nothing follows."""


class Stacked:
    """A layer on top of another."""

    __slots__ = ("_lower", "_upper", "is_secure")

    def __init__(self, lower: Layer, upper: Layer) -> None:
        self._lower = lower
        self._upper = upper
        self.is_secure = lower.is_secure

    @property
    def has_more(self) -> bool:
        return self._upper.has_more or self._lower.has_more

    def decode(self, received: bytes) -> bytes:
        """As `Layer.decode`. Raises LayerError."""
        data = self._lower.decode(received) if received or self._lower.has_more else b""
        return self._upper.decode(data) if data or self._upper.has_more else b""

    def encode(self, data: bytes) -> bytes:
        return self._lower.encode(self._upper.encode(data))

    def take_output(self) -> bytes:
        return self._lower.take_output()

    def end(self) -> bytes:
        last = self._upper.end()
        return (self._lower.encode(last) if last else b"") + self._lower.end()
