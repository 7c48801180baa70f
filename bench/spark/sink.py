"""A peer that says OK to all that is published and keeps nothing: what is measured with it is the sender alone."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self

from bench import wire

_READ_BYTES = 1 << 20
_MAGIC = b"  V2"
_WITH_BODY = (b"IDENTIFY", b"PUB", b"MPUB", b"DPUB")
_SIZE = struct.Struct(">i")
_FEATURES = {"max_rdy_count": 2500, "version": "1.3.0", "max_msg_timeout": 900_000, "msg_timeout": 60_000}


class Sink:
    """Listens on 127.0.0.1 from `with` to its end, with a thread for each connection.

    first_s  when the first message was there, as time.perf_counter tells; None: none was
    """

    def __init__(self) -> None:
        self.first_s: float | None = None
        self._counts: list[int] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    @property
    def messages(self) -> int:
        """All that came so far."""
        return sum(self._counts)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:  # closed
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._counts.append(0)
            threading.Thread(target=self._serve, args=(sock, len(self._counts) - 1), daemon=True).start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        with sock:
            stream = _Stream(sock)
            try:
                stream.take(len(_MAGIC))
                while True:
                    self._answer(stream, stream.line().split(), number)
            except OSError:  # it went away
                return

    def _answer(self, stream: _Stream, words: list[bytes], number: int) -> None:
        size_bytes = _SIZE.unpack(stream.take(_SIZE.size))[0] if words[0] in _WITH_BODY else 0
        if words[0] == b"IDENTIFY":
            stream.skip(size_bytes)
            stream.answer(json.dumps(_FEATURES).encode())
        elif words[0] == b"MPUB":
            count = _SIZE.unpack(stream.take(_SIZE.size))[0]
            self._first()
            stream.skip(size_bytes - _SIZE.size)
            self._counts[number] += count
            stream.answer(b"OK")
        elif size_bytes:
            self._first()
            stream.skip(size_bytes)
            self._counts[number] += 1
            stream.answer(b"OK")

    def _first(self) -> None:
        if self.first_s is None:
            self.first_s = time.perf_counter()


class _Stream:
    """Reads whole parts off a connection. Raises OSError at its end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = bytearray(_READ_BYTES)
        self._space = memoryview(self._data)
        self._start = self._end = 0

    def line(self) -> bytes:
        while (end := self._data.find(b"\n", self._start, self._end)) < 0:
            self._more()
        return self.take(end + 1 - self._start)

    def take(self, size: int) -> bytes:
        while self._end - self._start < size:
            self._more()
        found = bytes(self._space[self._start : self._start + size])
        self._start += size
        return found

    def skip(self, size: int) -> None:
        """Bodies are not looked at."""
        while size > self._end - self._start:
            size -= self._end - self._start
            self._start = self._end
            self._more()
        self._start += size

    def answer(self, data: bytes) -> None:
        self._sock.sendall(struct.pack(">ii", 4 + len(data), wire.RESPONSE) + data)

    def _more(self) -> None:
        rest = self._data[self._start : self._end]
        self._data[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
        count = self._sock.recv_into(self._space[self._end :])
        if not count:
            raise ConnectionError
        self._end += count
