"""A member of the group, on a real socket, that sends its standby whatever a script says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from nsqd_py.standby.group import NO_SECRET
from nsqd_py.standby.messages import NONCE_BYTES, STREAM_FRAME, GroupListener
from tests.support.wire import MAGIC

HEARTBEAT = b"_heartbeat_"

# script(offer) yields what the primary sends after the document of STANDBY.
Script = Callable[[dict[str, Any]], Iterator[bytes]]


def frame(data: bytes, kind: int = STREAM_FRAME) -> bytes:
    return (len(data) + 4).to_bytes(4, "big") + kind.to_bytes(4, "big") + data


class HostilePrimary:
    """Follows the script with each connection, and leaves the connection open.

    port      on 127.0.0.1
    attempts  number of STANDBYs that it got
    handled   number of connections of which the standby has handled, or refused, all that it was sent
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        self.attempts = self.handled = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._open.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError, EOFError), sock.makefile("rb") as stream:
            _exactly(stream, len(MAGIC))
            listener = GroupListener([NO_SECRET], [f"127.0.0.1:{self.port}"], bytes(NONCE_BYTES))
            while True:
                line = stream.readline()
                if line in (b"IDENTIFY\n", b"MEMBER\n", b"STANDBY\n"):
                    body = _exactly(stream, int.from_bytes(_exactly(stream, 4), "big"))
                if line == b"IDENTIFY\n":
                    sock.sendall(frame(b'{"auth_required":false,"tls_v1":false}', 0))
                elif line == b"MEMBER\n":
                    sock.sendall(frame(listener.answer(body), 0))
                elif line == b"STANDBY\n":
                    self.attempts += 1
                    for data in self._script(json.loads(listener.document(body))):
                        sock.sendall(data)
                    sock.sendall(frame(HEARTBEAT, 0))
                elif line in (b"NOP\n", b""):
                    self.handled += 1
                if not line:
                    return

    def close(self) -> None:
        for sock in (self._listener, *self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def _exactly(stream: Any, size: int) -> bytes:
    data: bytes = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


@contextmanager
def hostile_primary(script: Script) -> Iterator[HostilePrimary]:
    primary = HostilePrimary(script)
    try:
        yield primary
    finally:
        primary.close()
