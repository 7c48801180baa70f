"""A server without a queue: `python -m bench.peers.bare_server --port PORT --file FILE [--sync]`.

In each iteration it waits with epoll, receives from each connection that is ready, appends all of it to the file with
one `pwrite`, syncs the file with `--sync`, and sends an answer for each request. Those are the system calls of a server
that keeps what it acknowledges. It parses nothing but the size of a connection's first request: the others have the
same. At its start it reads the file that it finds.

A consumer of NSQ gets the same messages again and again: as many as it asked for by RDY and FIN are read from a file
with one `pread`, and sent.
"""

import gc
import os
import re
import select
import socket
import struct
from pathlib import Path

import click

from bench import wire

_RECEIVE_BYTES = 256 * 1024
_ALLOCATE_BYTES = 64 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_LONGEST_QUEUE = 4096
_SIZE_BYTES = 4
_MAGIC = b"  V2"
_RDY = re.compile(rb"RDY (\d+)\n")
_FIN_BYTES = len(b"FIN 0123456789abcdef\n")
_FRAMES = 2500
FRAME_BYTES = 34 + wire.BODY_BYTES


class Log:
    """A file that is allocated in large pieces and appended to."""

    def __init__(self, path: Path, *, syncs: bool) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self._syncs = syncs
        self._size_bytes = self._allocated_bytes = self._read_through()

    def _read_through(self) -> int:
        """Read the file; return its size in bytes."""
        size_bytes = 0
        while data := os.read(self._file, _READ_BYTES):
            size_bytes += len(data)
        return size_bytes

    def append(self, data: bytes) -> None:
        if self._size_bytes + len(data) > self._allocated_bytes:
            os.posix_fallocate(self._file, self._allocated_bytes, _ALLOCATE_BYTES)
            self._allocated_bytes += _ALLOCATE_BYTES
        self._size_bytes += os.pwrite(self._file, data, self._size_bytes)
        if self._syncs:
            os.fdatasync(self._file)


class Connection:
    """Counts the requests that arrive on a socket by their bytes."""

    __slots__ = ("_request_bytes", "_rest_bytes", "sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._request_bytes = self._rest_bytes = 0

    def count(self, data: bytes) -> int:
        """Return the number of requests that `data` completes."""
        if not self._request_bytes:
            self._request_bytes = int.from_bytes(data[:_SIZE_BYTES], "big")
        requests, self._rest_bytes = divmod(self._rest_bytes + len(data), self._request_bytes)
        return requests


class Subscriber:
    """A connection of a consumer: counts how many messages it may get."""

    __slots__ = ("_frames", "_room", "sock")

    def __init__(self, sock: socket.socket, frames: int) -> None:
        """`frames` is a file with `_FRAMES` message frames."""
        self.sock = sock
        self._frames = frames
        self._room = 0

    def take(self, data: bytes) -> None:
        """Answer what a consumer sent: SUB with OK, RDY and FIN with messages."""
        if b"SUB " in data:
            self.sock.sendall(wire.OK_FRAME)
        elif ready := _RDY.search(data):
            self._room += int(ready[1])
        else:
            self._room += len(data) // _FIN_BYTES
        count = min(self._room, _FRAMES)
        if count:
            self._room -= count
            self.sock.sendall(os.pread(self._frames, count * FRAME_BYTES, 0))


def frames_file(directory: Path) -> int:
    """Return an open file with message frames of the size that all loads use."""
    frame = struct.pack(">iiqH16s", FRAME_BYTES - 4, wire.MESSAGE, 1, 1, b"0" * 16) + wire.BODY
    file = os.open(directory / "frames", os.O_RDWR | os.O_CREAT)
    os.write(file, frame * _FRAMES)
    return file


def serve(listener: socket.socket, log: Log, frames: int) -> None:
    """Answer requests until the process is ended."""
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    connections: dict[int, Connection | Subscriber] = {}
    while True:
        received, answers = [], []
        for number, _ in poll.poll():
            connection = connections.get(number)
            if connection is None:
                sock, _ = listener.accept()
                connections[sock.fileno()] = Connection(sock)
                poll.register(sock, select.EPOLLIN)
                continue
            data = _receive(connection.sock)
            if data.startswith(_MAGIC) and isinstance(connection, Connection):
                connection = connections[number] = Subscriber(connection.sock, frames)
            if data and isinstance(connection, Subscriber):
                connection.take(data)
            elif data:
                received.append(data)
                answers.append((connection.sock, connection.count(data)))
            else:
                connections.pop(number).sock.close()
        if received:
            log.append(b"".join(received))
        for sock, count in answers:
            if count:
                sock.sendall(wire.OK_FRAME * count)


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(_RECEIVE_BYTES)
    except ConnectionError:
        return b""


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--file", "path", type=click.Path(path_type=Path), required=True)
@click.option("--sync", is_flag=True, help="Sync the file before each answer.")
def main(port: int, path: Path, sync: bool) -> None:
    log = Log(path, syncs=sync)
    gc.disable()
    serve(socket.create_server(("127.0.0.1", port), backlog=_LONGEST_QUEUE), log, frames_file(path.parent))


if __name__ == "__main__":
    main()
