"""A connection to nsqlookupd: TCP or TLS, one response after the other, and both sides of IDENTIFY.

A response is its size in four bytes, then its data. nsqlookupd sends nothing else: bytes that answer no command, or
the end of the stream, end the connection.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Any

import gevent
import orjson
from gevent.event import Event

from nsqd_py.errors import NsqdError
from nsqd_py.net.http.client import Target, connect
from nsqd_py.protocol import MAGIC_V1
from nsqd_py.protocol.batch import SIZE_BYTES
from nsqd_py.protocol.session import Kind, decode_fields
from nsqd_py.protocol.wrong_port import not_lookupd_tcp
from nsqd_py.server.options import NsqdOptions
from nsqd_py.version import NSQ_VERSION

OK = b"OK"
CONNECT_TIMEOUT_S = 1.0
RESPONSE_TIMEOUT_S = 5.0
_READ_BYTES = 64 * 1024
_HEAD_BYTES = 32  # more than the refusal of another protocol begins with
_READ = 1
_NOTHING_TO_READ = (BlockingIOError, ssl.SSLWantReadError)


# The answer to IDENTIFY. `http_port` is 0 if the nsqlookupd has no HTTP port; a negative one counts as 0.
_PORT = range(-(1 << 63), 1 << 16)
_PEER_INFO: dict[str, Kind] = {
    "tcp_port": _PORT,
    "http_port": _PORT,
    "version": str,
    "broadcast_address": str,
}


# ---- the connection


class BadResponse(NsqdError):
    """An answer of nsqlookupd that is a refusal, or that cannot be parsed."""


class LookupConnection:
    """A connection. Methods that wait have a time limit; they raise OSError when it passes or the connection ends."""

    def __init__(self, target: Target, max_response_bytes: int, tls: Any = None, tls_name: str = "") -> None:
        """Connect. Raises OSError."""
        self._max_response_bytes = max_response_bytes
        self._input = bytearray()
        timeout_s = CONNECT_TIMEOUT_S if tls is None else RESPONSE_TIMEOUT_S
        with gevent.Timeout(timeout_s, TimeoutError(f"no connection within {timeout_s:g}s")):
            self._sock = connect(target, tls, tls_name)
        self._watcher = gevent.get_hub().loop.io(self._sock.fileno(), _READ)
        self._out = [MAGIC_V1]

    def send(self, *commands: bytes) -> None:
        """Send commands. Return when the kernel has all of them."""
        data = b"".join([*self._out, *commands])
        self._out = []
        with gevent.Timeout(RESPONSE_TIMEOUT_S, TimeoutError("could not be sent")):
            self._sock.sendall(data)

    def read(self) -> bytes:
        """Return the next response. Raises BadResponse for one that is too long."""
        with gevent.Timeout(RESPONSE_TIMEOUT_S, TimeoutError(f"no response within {RESPONSE_TIMEOUT_S:g}s")):
            while (response := self._take()) is None:
                self._receive()
        return response

    def _take(self) -> bytes | None:
        data = self._input
        if len(data) < SIZE_BYTES:
            return None
        if data.startswith(b"HTTP"):
            raise BadResponse(not_lookupd_tcp(b"HTTP/"))
        size = int.from_bytes(data[:SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= self._max_response_bytes:
            raise BadResponse(
                f"response body size ({size}) is greater than limit ({self._max_response_bytes})"
            )
        end = SIZE_BYTES + size
        if len(data) < end:
            return None
        wrong_port = not_lookupd_tcp(bytes(data[:_HEAD_BYTES]))
        if wrong_port:
            raise BadResponse(wrong_port)
        response = bytes(data[SIZE_BYTES:end])
        del data[:end]
        return response

    def _receive(self) -> None:
        data = self._sock.recv(_READ_BYTES)
        if not data:
            raise ConnectionError("closed by nsqlookupd")
        self._input += data

    def wait(self, wake: Event, timeout_s: float) -> None:
        """Wait until `wake` is set, time runs out or the connection ends. Raises BadResponse for unrequested bytes."""
        self._watcher.start(wake.set)
        try:
            wake.wait(timeout_s)
        finally:
            self._watcher.stop()
        self._check_silence()

    def _check_silence(self) -> None:
        sock = self._sock
        sock.settimeout(0.0)
        try:
            self._receive()
        except _NOTHING_TO_READ:
            return
        finally:
            sock.settimeout(None)
        raise BadResponse("a response that nothing asked for")

    def close(self) -> None:
        self._watcher.stop()
        self._watcher.close()
        with suppress(OSError):
            self._sock.close()


# ---- IDENTIFY


def identify(options: NsqdOptions, tcp_port: int, http_port: int) -> bytes:
    """Return the IDENTIFY command of an nsqd that listens on these ports."""
    body = orjson.dumps(
        {
            "version": NSQ_VERSION,
            "tcp_port": options.broadcast_tcp_port or tcp_port,
            "http_port": options.broadcast_http_port or http_port,
            "hostname": socket.gethostname(),
            "broadcast_address": options.broadcast_address,
            "topology_zone": options.topology_zone,
            "topology_region": options.topology_region,
        }
    )
    return b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body


def parse_peer_info(response: bytes) -> dict[str, Any]:
    """Parse the answer to IDENTIFY. Raises BadResponse."""
    if response.startswith(b"E_"):
        raise BadResponse(f"lookupd returned {response.decode(errors='replace')}")
    try:
        return decode_fields(response, _PEER_INFO)
    except ValueError as error:
        raise BadResponse(f"parsing response - {response[:200].decode(errors='replace')}") from error
