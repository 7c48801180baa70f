"""One connection without I/O: bytes from nsqd in, events and bytes for nsqd out. It begins with the handshake.

    session.start()
    while True:
        sock.sendall(session.take_output())
        for event in session.received(sock.recv(...)):
            ...

The shells, on gevent and without it, add the socket.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from nsqd_py.client.errors import AtAddress, AuthFailed, ConnectionLost, HandshakeFailed, NsqdSaid
from nsqd_py.client.options import ClientOptions
from nsqd_py.errors import LayerError
from nsqd_py.net.layers import DeflateLayer, Layer, Stacked
from nsqd_py.protocol import MAGIC_V2, outgoing
from nsqd_py.protocol.incoming import ErrorFrame, Found, FrameParser, IncomingMessages, Responses, WrongPort
from nsqd_py.protocol.session import INT64, Kind, decode_fields

HEARTBEAT = b"_heartbeat_"
_OK = b"OK"
_SECOND_MS = 1000
_OFF_MS = -1
_AUTH_CODES = frozenset(("E_AUTH_FAILED", "E_AUTH_ERROR", "E_AUTH_DISABLED", "E_UNAUTHORIZED"))

_IDENTITY_FIELDS: dict[str, Kind] = {
    "max_rdy_count": INT64,
    "msg_timeout": INT64,
    "max_msg_timeout": INT64,
    "tls_v1": bool,
    "deflate": bool,
    "deflate_level": INT64,
    "snappy": bool,
    "auth_required": bool,
    "http_port": INT64,
}


@dataclass(frozen=True, slots=True)
class Negotiated:
    """The result of the negotiation. The defaults are those of an nsqd that does not negotiate.

    max_msg_timeout_s  how long a message may be in flight in all, however often it is touched
    http_port          of an nsqd-py with an HTTP address; 0 if it is not known
    """

    max_rdy_count: int = 2500
    msg_timeout_s: float = 60.0
    max_msg_timeout_s: float = 900.0
    tls_v1: bool = False
    deflate: bool = False
    deflate_level: int = 6
    snappy: bool = False
    auth_required: bool = False
    http_port: int = 0


def identify_document(options: ClientOptions, hostname: str) -> bytes:
    """Return the JSON of IDENTIFY. `hostname` is used if the options name none."""
    host = options.hostname or hostname
    client_id = options.client_id or host.partition(".")[0]
    document = {
        "client_id": client_id,
        "hostname": host,
        "user_agent": options.user_agent,
        "feature_negotiation": True,
        "heartbeat_interval": _milliseconds(options.heartbeat_interval_s),
        "output_buffer_size": options.output_buffer_size,
        "output_buffer_timeout": _milliseconds(options.output_buffer_timeout_s),
        "msg_timeout": _milliseconds(options.msg_timeout_s),
        "sample_rate": options.sample_rate,
        "tls_v1": options.tls_v1,
        "deflate": options.deflate,
        "deflate_level": options.deflate_level,
        "snappy": options.snappy,
        "topology_region": options.topology_region,
        "topology_zone": options.topology_zone,
        "wants_http_port": True,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _milliseconds(seconds: float) -> int:
    if seconds < 0:
        return _OFF_MS
    return round(seconds * _SECOND_MS)


def _negotiated(fields: dict[str, Any]) -> Negotiated:
    fields["deflate_level"] = min(max(fields["deflate_level"], 1), 9)  # zlib takes no other
    for name in ("msg_timeout", "max_msg_timeout"):
        fields[f"{name}_s"] = fields.pop(name) / _SECOND_MS
    # 0 is no limit, and no other one can be negative: the protocol's defaults replace them.
    return Negotiated(
        **{name: value for name, value in fields.items() if isinstance(value, bool) or value > 0}
    )


def _make_snappy() -> Layer:
    """Raises ModuleNotFoundError if the packages for snappy are not installed."""
    from nsqd_py.net.snappy import SnappyLayer  # 1.5 MB of memory

    return SnappyLayer()


@dataclass(frozen=True, slots=True)
class Broken:
    """The connection cannot be used any more, and must be closed. No event follows."""

    error: AtAddress


# `Negotiated` comes when the handshake is over: commands may be sent.
Event: TypeAlias = "Negotiated | IncomingMessages | Responses | NsqdSaid | Broken"


class ClientSession:
    """The protocol on one connection. Heartbeats are answered here, in the output."""

    def __init__(
        self, address: str, options: ClientOptions, make_tls: Callable[[], Layer], hostname: str = ""
    ) -> None:
        """`address` is for error texts; `make_tls` is called once both sides have agreed on TLS."""
        self._address = address
        self._options = options
        self._make_tls = make_tls
        self._hostname = hostname
        self._is_ready = False  # the handshake is over
        self._handshake = self._shake_hands()
        next(self._handshake)
        self._parser = FrameParser(options.max_msg_size)
        self._layer: Layer | None = None
        self._output: list[bytes] = []
        self._raw_output: list[bytes] = []  # encoded by the layers of the time when it was added
        self._is_broken = False

    # ---- out

    def start(self) -> None:
        """Begin the handshake."""
        self.send(MAGIC_V2 + outgoing.identify(identify_document(self._options, self._hostname)))

    def send(self, data: bytes) -> None:
        """Add one or several commands to the output."""
        self._output.append(data)

    @property
    def has_output(self) -> bool:
        return bool(self._output or self._raw_output)

    def take_output(self) -> bytes:
        """Return all bytes to send now."""
        output = self._output
        if self._layer is None and len(output) == 1:
            return output.pop()
        self._encode_output()
        raw = b"".join(self._raw_output)
        self._raw_output.clear()
        return raw

    def end(self) -> bytes:
        """Return the output, and the bytes that say to nsqd that nothing follows."""
        self._encode_output()
        if self._layer is not None:
            self._raw_output.append(self._layer.end())
        return self.take_output()

    def _encode_output(self) -> None:
        if self._output:
            data = b"".join(self._output)
            self._output.clear()
            self._raw_output.append(data if self._layer is None else self._layer.encode(data))
        if self._layer is not None:
            self._raw_output.append(self._layer.take_output())

    # ---- in

    @property
    def has_more(self) -> bool:
        """True if `received(b"")` returns more events: a few bytes were decompressed to many, which come in steps."""
        return self._layer is not None and self._layer.has_more and not self._is_broken

    def received(self, data: bytes) -> list[Event]:
        """Return the events of `data`, in order. Afterwards there may be output."""
        if self._is_broken:
            return []
        try:
            if self._layer is not None:
                data = self._layer.decode(data)
            if self._is_ready:
                events = self._events(self._parser.feed(data))
            else:
                events = self._go_on(data)
        except LayerError as error:
            broken = self._broken(str(error))
            if isinstance(broken.error, HandshakeFailed):
                broken.error.is_lasting = True
            return [broken]
        except HandshakeFailed as error:
            self._is_broken = True
            return [Broken(error)]
        failure = self._parser.failure
        if failure is not None:
            events.append(
                self._broken(str(failure) if isinstance(failure, WrongPort) else f"nsqd sent {failure}")
            )
        return events

    def ended(self) -> AtAddress:
        """Return the error for a connection that nsqd has closed now."""
        return self.failed(f"nsqd closed the connection{'' if self._is_ready else ' during the handshake'}")

    def failed(self, reason: str) -> AtAddress:
        """Return the error to raise now."""
        kind = ConnectionLost if self._is_ready else HandshakeFailed
        return kind(self._address, reason)

    def _broken(self, reason: str) -> Broken:
        self._is_broken = True
        return Broken(self.failed(reason))

    def _events(self, found: list[Found]) -> list[Event]:
        events: list[Event] = []
        has_heartbeat = (
            False  # one NOP answers any number: a few bytes may decompress to a million heartbeats
        )
        for item in found:
            if isinstance(item, IncomingMessages):
                events.append(item)
            elif isinstance(item, ErrorFrame):
                code, _, text = item.data.decode("utf-8", "replace").partition(" ")
                events.append(NsqdSaid(self._address, code, text))
            elif item.data == HEARTBEAT:
                has_heartbeat = True
            else:
                events.append(item)
        if has_heartbeat:
            self.send(outgoing.NOP)
        return events

    # ---- handshake

    def _go_on(self, data: bytes) -> list[Event]:
        """Continue the handshake. Raises HandshakeFailed, AuthFailed and LayerError."""
        while (answer := self._parser.feed_one(data)) is not None:
            data = b""
            if isinstance(answer, ErrorFrame):
                text = answer.data.decode("utf-8", "replace")
                code = text.partition(" ")[0]
                kind = AuthFailed if code in _AUTH_CODES else HandshakeFailed
                raise kind.lasting(self._address, f"nsqd refused the handshake: {text}", code)
            if answer.data == HEARTBEAT:
                self.send(outgoing.NOP)
                continue
            try:
                data = self._handshake.send(answer.data)
            except StopIteration as over:
                self._is_ready = True
                return [over.value, *self._events(self._parser.feed(b""))]
        return []

    def _shake_hands(self) -> Generator[bytes, bytes, Negotiated]:
        """Take each answer of nsqd, and yield the bytes to parse for the next one. Return what was negotiated."""
        agreed = self._take_identity((yield b""))
        layers: list[tuple[bool, Callable[[], Layer]]] = [
            (agreed.tls_v1, self._make_tls),
            (agreed.snappy, _make_snappy),
            (agreed.deflate, partial(DeflateLayer, agreed.deflate_level)),
        ]
        for is_agreed, make_layer in layers:
            if is_agreed and (answer := (yield self._add_layer(make_layer))) != _OK:
                raise HandshakeFailed(self._address, f"nsqd answered {answer[:80]!r} in place of OK")
        if agreed.auth_required:
            self.send(outgoing.auth(self._options.auth_secret.encode()))
            yield b""
        return agreed

    def _take_identity(self, data: bytes) -> Negotiated:
        agreed = Negotiated()
        options = self._options
        if data != _OK:  # the answer of an nsqd that negotiates nothing
            try:
                agreed = _negotiated(decode_fields(data, _IDENTITY_FIELDS))
            except ValueError as error:
                reason = f"nsqd answered {data[:80]!r}, which is no JSON: {error}"
                raise HandshakeFailed(self._address, reason) from error
        if options.tls_v1 and not agreed.tls_v1:
            reason = "nsqd offers no TLS (it has no --tls-cert), but tls_v1 asks for it"
            raise HandshakeFailed.lasting(self._address, reason)
        if agreed.auth_required and not options.auth_secret:
            raise AuthFailed.lasting(self._address, "nsqd asks for a secret: give auth_secret")
        return agreed

    def _add_layer(self, make_layer: Callable[[], Layer]) -> bytes:
        """Return the bytes behind the last answer, as the new layer decodes them."""
        try:
            layer = make_layer()
        except ModuleNotFoundError as error:
            reason = f"{error}: compression needs `pip install cramjam google-crc32c`"
            raise HandshakeFailed(self._address, reason) from error
        except OSError as error:
            raise HandshakeFailed(self._address, str(error)) from error
        self._encode_output()
        if self._layer is None:
            self._layer = layer
        else:
            self._layer = Stacked(self._layer, layer)
        return layer.decode(self._parser.take_rest())
