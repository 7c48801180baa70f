"""The buffers of a socket in the kernel: what they hold, and how much of them is read at once. The addresses of sockets."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from fcntl import ioctl
from struct import Struct
from termios import FIONREAD, TIOCOUTQ
from typing import Any

SMALL_READ = 16 * 1024
LARGE_READ = 256 * 1024
_SMALLEST_READ = 1024
_READ_BUDGET_NS = 2_000_000
_DISCARDED_READS = 64
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux has it
_NO_LINGERING = Struct("ii").pack(1, 0)


def fitting_read(size_bytes: int, cpu_ns: int) -> int:
    """Return the size of the next read from a connection that filled its last one.

    Large reads make large batches, but delay other clients. 256 KiB of messages take 0.1 to 1 ms; 256 KiB of commands
    that all fail take 150 ms. With 200 clients that send such commands, other clients wait for 2 s instead of 30 s.
    """
    return max(_SMALLEST_READ, min(LARGE_READ, size_bytes * _READ_BUDGET_NS // max(cpu_ns, 1)))


def has_input(sock: socket.socket) -> bool:
    """True if the socket has received bytes that are not read yet."""
    return any(ioctl(sock, FIONREAD, bytes(4)))


def rest_of(parts: Sequence[bytes | memoryview], sent: int) -> memoryview:
    """Return the bytes of the parts after the first `sent`, copied: a view would keep the whole batch in memory."""
    unsent = 0
    while unsent < len(parts) and sent >= len(parts[unsent]):
        sent -= len(parts[unsent])
        unsent += 1
    return memoryview(b"".join(parts[unsent:]))[sent:]


def untaken_bytes(sock: socket.socket) -> int:
    """Return the number of sent bytes that the peer has not acknowledged.

    A socket that buffers a few MB becomes writable only when a third of them are gone. A slow reader may need minutes
    for that although it is alive.
    """
    return int.from_bytes(ioctl(sock, TIOCOUTQ, bytes(4)), sys.byteorder)


def acknowledge_input(sock: socket.socket) -> None:
    """Send the ACK of received bytes at once. By default, the system waits up to 40 ms for output that it can go with."""
    if _QUICK_ACK is not None:
        with suppress(OSError):  # another kind of socket
            sock.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)


def drop_output_at_close(sock: socket.socket) -> None:
    """Let the close of a socket drop what the peer has not taken, which may be a few MB."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)


def discard_input(sock: socket.socket) -> None:
    """Read pending input: closing with unread input resets the connection, and the peer may miss an answer."""
    try:
        for _ in range(_DISCARDED_READS):
            if not sock.recv(LARGE_READ):
                return
    except OSError:
        return


def literal_target(host: str, port: int) -> tuple[int, tuple[Any, ...]] | None:
    """Return the address family and the address to connect to, of an IP address; None for a name. Does not wait."""
    try:
        # A str would load Python's codec of international names: 2 ms of a start.
        literal = host.encode("ascii")
        found: list[Any] = socket.getaddrinfo(
            literal, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    except (OSError, UnicodeError):
        return None
    return int(found[0][0]), found[0][4]
