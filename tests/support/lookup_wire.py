"""A small client of nsqlookupd's TCP protocol on a raw socket, for tests. It also sends what is wrong."""

from __future__ import annotations

import json
import ssl
import time
from typing import Any

from tests.support.wire import DEADLINE_S, Client, sized

MAGIC = b"  V1"
PRODUCER = {
    "broadcast_address": "host",
    "hostname": "host",
    "tcp_port": 4150,
    "http_port": 4151,
    "version": "1.3.0",
}


def identify(**changes: Any) -> bytes:
    """An IDENTIFY; a field that is changed to None is left out."""
    fields = {name: value for name, value in (PRODUCER | changes).items() if value is not None}
    return b"IDENTIFY\n" + sized(json.dumps(fields).encode())


class LookupClient(Client):
    """One connection to nsqlookupd, as that of an nsqd."""

    def __init__(self, port: int, *, magic: bytes = MAGIC, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(port, magic=b"")
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.send(magic)

    @property
    def address(self) -> str:
        """What nsqlookupd calls this connection."""
        host, port = self.socket.getsockname()[:2]
        return f"{host}:{port}"

    def read(self) -> bytes:
        """The next response. Raises `Closed`."""
        size = int.from_bytes(self._read_exactly(4), "big")
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytes:
        deadline = time.monotonic() + DEADLINE_S
        while len(self._input) < size:
            self._receive(deadline)
        data = bytes(self._input[:size])
        del self._input[:size]
        return data

    def ask(self, command: str) -> bytes:  # type: ignore[override]
        self.send(command.encode() + b"\n")
        return self.read()

    def introduce(self, **changes: Any) -> dict[str, Any]:
        """IDENTIFY; what nsqlookupd says of itself."""
        self.send(identify(**changes))
        return json.loads(self.read())

    def register(self, *registrations: str) -> LookupClient:
        """`topic` or `topic channel`, each."""
        for registration in registrations:
            assert self.ask(f"REGISTER {registration}") == b"OK"
        return self
