"""One hostile input on ten connections, and a neighbour that goes on with its work in the meantime."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import Certificates
from tests.support.nsqd_process import NsqdProcess, ServerProcess
from tests.support.transports import TransportClient
from tests.support.wire import Client

CONNECTIONS = 10
# A connection that has said all ends its side; the daemon has so long to end the other.
_END_S = 5.0
_READ_S = 0.5  # an event stream never ends
_MB = 1024 * 1024

# Opens a connection on which an input can be sent, behind whatever negotiation it needs.
Open = Callable[[], "Sender"]


@dataclass
class Sender:
    """A connection of an attacker: how it sends, and its socket."""

    send: Callable[[bytes], None]
    sock: socket.socket


@dataclass
class Cost:
    """What an input did to its daemon and to the neighbour.

    worst_s  the longest round trip of the neighbour: the lesser of wall time and of CPU time of the daemon's main
             thread, so that it does not depend on other programs on this machine
    """

    worst_s: float
    gained_mb: float
    log_bytes: int

    def __str__(self) -> str:
        return f"worst {self.worst_s * 1000:.0f} ms, {self.gained_mb:+.0f} MB, log {self.log_bytes} bytes"


def rss_mb(process: ServerProcess) -> float:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096 / _MB


def attack(process: ServerProcess, openers: Sequence[Open], inputs: Sequence[bytes]) -> Cost:
    """Send the inputs in turn on ten connections, opened in turn; wait until the daemon has done with them."""
    log_bytes, memory_mb = process.log_path.stat().st_size, rss_mb(process)
    senders = [openers[number % len(openers)]() for number in range(CONNECTIONS)]
    threads = [
        threading.Thread(target=_send_all, args=(sender, inputs[number % len(inputs)]), daemon=True)
        for number, sender in enumerate(senders)
    ]
    worst_s = most_mb = 0.0
    with _neighbour(process) as round_trip:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            began_s, began_cpu_s = time.monotonic(), process.loop_cpu_s
            round_trip()
            worst_s = max(worst_s, min(time.monotonic() - began_s, process.loop_cpu_s - began_cpu_s))
            most_mb = max(most_mb, rss_mb(process))
    return Cost(worst_s, most_mb - memory_mb, process.log_path.stat().st_size - log_bytes)


def _send_all(sender: Sender, data: bytes) -> None:
    with sender.sock, contextlib.suppress(OSError, http.client.HTTPException):
        sender.sock.settimeout(_END_S)
        reader = threading.Thread(target=_read_all, args=(sender.sock,), daemon=True)
        reader.start()
        with contextlib.suppress(OSError):
            sender.send(data)
            sender.sock.shutdown(socket.SHUT_WR)
        reader.join(_READ_S)


def _read_all(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sock.recv(1 << 18):
            pass


@contextlib.contextmanager
def _neighbour(process: ServerProcess) -> Iterator[Callable[[], object]]:
    """Yield what it does again and again: publish to an nsqd, ask other daemons."""
    if isinstance(process, NsqdProcess):
        with Client(process.tcp_port) as client:
            client.pub("neighbour", b"x")
            yield lambda: client.pub("neighbour", b"x")
        return
    connection = http.client.HTTPConnection("127.0.0.1", process.http_port, timeout=40)
    path = "/lookup?topic=neighbour" if process.tcp_port else "/ping"

    def ask() -> None:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200, response.status
        response.read()

    yield ask
    connection.close()


def plain(port: int, first: bytes = b"") -> Open:
    def connect() -> Sender:
        sock = socket.create_connection(("127.0.0.1", port), timeout=_END_S)
        sock.sendall(first)
        return Sender(sock.sendall, sock)

    return connect


TRANSPORTS = ("plain", "tls", "snappy", "deflate")


def nsqd_over(port: int, transport: str, certificates: Certificates) -> Open:
    """Connections to an nsqd that have negotiated one of TRANSPORTS."""
    if transport == "plain":
        return plain(port, b"  V2")

    def connect() -> Sender:
        client = TransportClient(port)
        if transport == "tls":
            client.upgrade(certificates.client_context())
        else:
            client.upgrade(**{transport: True})
        return Sender(client.send, client.socket)

    return connect
