"""A small client of nsqlookupd's TCP protocol on a raw socket, for tests. It also sends what is wrong."""

from __future__ import annotations

import json
import socket
import ssl
from types import TracebackType
from typing import Any

from tests.support.wire import Closed, sized

MAGIC = b"  V1"
DEADLINE_S = 40.0
PRODUCER = {"broadcast_address": "host", "hostname": "host", "tcp_port": 4150, "http_port": 4151, "version": "1.3.0"}


def identify(**changes: Any) -> bytes:
    """An IDENTIFY; a field that is changed to None is left out."""
    fields = {name: value for name, value in (PRODUCER | changes).items() if value is not None}
    return b"IDENTIFY\n" + sized(json.dumps(fields).encode())


class LookupClient:
    """One connection to nsqlookupd, as that of an nsqd."""

    def __init__(
        self, port: int, *, magic: bytes = MAGIC, tls: ssl.SSLContext | None = None, server_name: str = "localhost"
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=server_name)
        self._input = b""
        self.send(magic)

    def __enter__(self) -> LookupClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    @property
    def address(self) -> str:
        """What nsqlookupd calls this connection."""
        host, port = self.socket.getsockname()[:2]
        return f"{host}:{port}"

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_byte_by_byte(self, data: bytes) -> None:
        for position in range(len(data)):
            self.send(data[position : position + 1])

    def end_input(self) -> None:
        """Sends the end of input, and still reads."""
        self.socket.shutdown(socket.SHUT_WR)

    def read(self) -> bytes:
        """The next response. Raises `Closed`."""
        size = int.from_bytes(self._read_exactly(4), "big")
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytes:
        while len(self._input) < size:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError as error:
                raise Closed from error
            if not data:
                raise Closed
            self._input += data
        data, self._input = self._input[:size], self._input[size:]
        return data

    def ask(self, command: str) -> bytes:
        self.send(command.encode() + b"\n")
        return self.read()

    def introduce(self, **changes: Any) -> dict[str, Any]:
        """IDENTIFY; what nsqlookupd says of itself."""
        self.send(identify(**changes))
        answer: dict[str, Any] = json.loads(self.read())
        return answer

    def register(self, *registrations: str) -> LookupClient:
        """`topic` or `topic channel`, each."""
        for registration in registrations:
            assert self.ask(f"REGISTER {registration}") == b"OK"
        return self
