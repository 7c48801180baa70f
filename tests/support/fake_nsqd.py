"""Something that listens where an nsqd is expected, and does with a connection what a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from nsqd_py.protocol import frames
from tests.support.nsqd_side import identity

Behaviour = Callable[[socket.socket], None]

# The counts of a channel in /stats.
CHANNEL_COUNTS = (
    "depth",
    "backend_depth",
    "in_flight_count",
    "deferred_count",
    "message_count",
    "requeue_count",
    "timeout_count",
    "client_count",
)


@contextlib.contextmanager
def listening(*behaviours: Behaviour) -> Iterator[str]:
    """Its address. Each connection in turn gets a behaviour in a thread of its own, and is open until the end."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:

        def serve() -> None:
            for behaviour in behaviours:
                sock, _ = server.accept()
                stack.enter_context(sock)
                with contextlib.suppress(OSError):
                    behaviour(sock)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        if not behaviours:
            return
        thread.join(40)
        assert not thread.is_alive()


def agree(sock: socket.socket) -> None:
    """The handshake of an nsqd that has nothing to offer; then silence."""
    sock.recv(65536)
    sock.sendall(identity())


def hang_up(sock: socket.socket) -> None:
    """Read what comes first, and close."""
    sock.recv(65536)
    sock.close()


def reset(sock: socket.socket) -> None:
    """Close with what came unread."""
    sock.recv(1)
    sock.close()


def agree_then(data: bytes, *, and_close: bool = False) -> Behaviour:
    """Say this once the client has said something more."""

    def behave(sock: socket.socket) -> None:
        agree(sock)
        sock.recv(65536)
        sock.sendall(data)
        if and_close:
            sock.close()

    return behave


def read_late(read_bytes: int, data: bytes = b"", may_read: threading.Event | None = None) -> Behaviour:
    """After the handshake say all of this, wait until it may read, read so many bytes, and say OK."""

    def behave(sock: socket.socket) -> None:
        agree(sock)
        sock.sendall(data)
        if may_read is not None:
            assert may_read.wait(40)
        left = read_bytes
        while left > 0:
            left -= len(sock.recv(1 << 20))
        sock.sendall(frames.OK)

    return behave
