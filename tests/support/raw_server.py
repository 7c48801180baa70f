"""A server in threads that knows no HTTP: tests say which bytes it answers."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class RawServer:
    """Answers every request with the same bytes. With `closes`, it then closes the connection."""

    def __init__(self, response: bytes, closes: bool) -> None:
        self.connections = 0
        self._response, self._closes = response, closes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock = self._listener.accept()[0]
                self.connections += 1
                threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        with suppress(OSError), sock:
            while sock.recv(65536):
                sock.sendall(self._response)
                if self._closes:
                    return

    def close(self) -> None:
        self._listener.close()
