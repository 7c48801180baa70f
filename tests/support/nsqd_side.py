"""The other side of a client's session in memory: answers as nsqd gives them, through the layers that it adds."""

from __future__ import annotations

import json
import ssl
from typing import Any

from nsqd_py.client.blocking.connection import tls_context
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import ClientSession, Event
from nsqd_py.net.layers import DeflateLayer, Layer, Stacked
from nsqd_py.net.snappy import SnappyLayer
from nsqd_py.net.tls import TlsLayer, server_context
from nsqd_py.net.tls_options import ServerTlsOptions
from nsqd_py.protocol import frames
from tests.support.certificates import Certificates

ADDRESS = "localhost:4150"


def new_session(options: ClientOptions) -> ClientSession:
    def make_tls() -> TlsLayer:
        return TlsLayer(tls_context(options, ssl.SSLContext), "localhost")

    return ClientSession(ADDRESS, options, make_tls, "box.example.org")


def identity(**fields: Any) -> bytes:
    """The answer to IDENTIFY."""
    return frames.response(json.dumps({"max_rdy_count": 2500, "version": "1.3.0", **fields}).encode())


class NsqdSide:
    """`tell` gives bytes for the client, encoded by what has been added; `hear` decodes those of the client."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        self._certificates = certificates
        self._layer: Layer | None = None

    def add(self, name: str) -> None:
        layer = self._new(name)
        self._layer = layer if self._layer is None else Stacked(self._layer, layer)

    def _new(self, name: str) -> Layer:
        if name == "snappy":
            return SnappyLayer()
        if name == "deflate":
            return DeflateLayer(6)
        files = {
            "tls_cert": str(self._certificates.server_certificate),
            "tls_key": str(self._certificates.server_key),
        }
        return TlsLayer(server_context(ServerTlsOptions(**files)))

    def tell(self, data: bytes) -> bytes:
        return data if self._layer is None else self._layer.encode(data)

    def hear(self, data: bytes) -> bytes:
        return data if self._layer is None else self._layer.decode(data)

    def take_output(self) -> bytes:
        return b"" if self._layer is None else self._layer.take_output()


def shake_hands(session: ClientSession, side: NsqdSide, layers: list[str], **fields: Any) -> list[Event]:
    """A whole handshake with these layers; what the client hears of it."""
    session.start()
    heard = side.hear(session.take_output())
    assert heard.startswith(b"  V2IDENTIFY\n")
    events = session.received(
        side.tell(
            identity(tls_v1="tls" in layers, snappy="snappy" in layers, deflate="deflate" in layers, **fields)
        )
    )
    for layer in layers:
        side.add(layer)
        data = side.tell(frames.OK)
        while True:
            events += session.received(data)
            output = session.take_output()
            if not output:
                break
            assert side.hear(output) == b""
            data = side.take_output()
    return events
