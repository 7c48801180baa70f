"""A broker in the event loop of a test, and connections to it whose other ends the test holds."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import gevent.socket

from nsqd_py.api.publishing import PublishingConnection
from nsqd_py.broker.broker import Broker
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.transport import Stream
from nsqd_py.pqueues.alarms import Alarms
from nsqd_py.protocol.session import Limits
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from nsqd_py.server.options import read_options
from nsqd_py.tcp.connection import ClientConnection
from tests.unit.fakes import disk_threads

DEADLINE_S = 40.0


class ServedBroker:
    """A broker on a directory.

    tcp, http  make the connection of a socket, which is not started
    """

    def __init__(
        self,
        directory: Path,
        *flags: str,
        connection: type[ClientConnection] = ClientConnection,
        log: Log | None = None,
        **limits: Any,
    ) -> None:
        hub = gevent.get_hub()
        self.log = log or Log(level=FATAL)
        self.iteration = LoopIteration(hub, self.log)
        self.options = read_options([f"--data-path={directory}", *flags])
        self.broker = Broker(self.options, self.log, self.iteration, Alarms(), disk_threads())
        self.broker.disk_speed.is_measured = False  # a busy machine is no slow disk
        around = ("127.0.0.1:5", hub.loop, self.iteration, self.log, self.broker)
        self.tcp: Callable[[socket.socket], Stream] = lambda sock: connection(sock, *around, Limits(**limits))
        self.http: Callable[[socket.socket], Stream] = lambda sock: PublishingConnection(sock, *around)


def connected(make: Callable[[socket.socket], Stream]) -> tuple[Any, Any]:
    """Start a connection; return it, and the socket of its client, which gevent waits for."""
    ours, theirs = socket.socketpair()
    connection = make(theirs)
    connection.start()
    client = gevent.socket.socket(fileno=ours.detach())
    client.settimeout(DEADLINE_S)
    return connection, client


def wait_in_loop(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Return the first answer that is true. The event loop goes on in the meantime."""
    with gevent.Timeout(DEADLINE_S, AssertionError(f"waited for {what}")):
        while not (answer := condition()):
            gevent.sleep(0.001)
    return answer


def read_all(client: Any) -> bytes:
    """All that comes until the end of the connection."""
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


def read_until(client: Any, text: bytes) -> bytes:
    """All that comes until it has this text."""
    received = b""
    while text not in received:
        piece = client.recv(1 << 16)
        assert piece, received
        received += piece
    return received
