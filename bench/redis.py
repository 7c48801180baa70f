"""A Redis server as the peer of nsqd, with an append-only file that it syncs before each answer."""

import socket
import time
from pathlib import Path

from bench.run import LoadError
from bench.server import Daemon, Server, free_ports

_READY_WITHIN_S = 20.0


class RedisServer(Server):
    """Like `Server`. Its endpoint has no HTTP port."""

    def _start(self, directory: Path) -> None:
        self._ports = [*free_ports(1), 0, 0]
        self._log = directory / "log"
        data = directory / "data"
        data.mkdir()
        self._command += [
            "--port", str(self._ports[0]), "--bind", "127.0.0.1", "--dir", str(data), "--save", "", "--appendonly",
            "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
        ]  # fmt: skip
        self._launch()

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + _READY_WITHIN_S
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self._ports[0])) as sock:
                    sock.sendall(b"INFO server\r\n")
                    found = sock.recv(65536)
                    self.version = found.partition(b"redis_version:")[2].split(b"\r\n")[0].decode()
                    return
            except OSError as error:
                if time.monotonic() > deadline_s:
                    raise LoadError(f"redis-server is not ready: {error}; {self._last_words()}") from None
                time.sleep(0.02)


REDIS = Daemon("redis-server", "", keeps_data=True, server=RedisServer)


def xadd(stream: str, body: bytes) -> bytes:
    """Return the command that appends a message of one field to a stream."""
    words = (b"XADD", stream.encode(), b"*", b"b", body)
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
