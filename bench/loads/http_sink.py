"""An HTTP server that answers 200 to every request and keeps nothing, in a process of its own."""

import multiprocessing
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"
_RECEIVE_BYTES = 65536
_LENGTH = b"content-length:"


@contextmanager
def http_sink() -> Iterator[int]:
    """Serve on 127.0.0.1; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener,), daemon=True)
    process.start()
    try:
        yield listener.getsockname()[1]
    finally:
        process.kill()
        process.join()
        listener.close()


def _serve(listener: socket.socket) -> None:
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    socks: dict[int, socket.socket] = {}
    parts: dict[int, bytes] = {}
    while True:
        for number, _ in poll.poll():
            if number not in socks:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                socks[sock.fileno()] = sock
                poll.register(sock, select.EPOLLIN)
                continue
            data = _receive(socks[number])
            if not data:
                socks.pop(number).close()
                parts.pop(number, None)
            elif is_whole(request := parts.pop(number, b"") + data):
                socks[number].send(_OK)
            else:
                parts[number] = request


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(_RECEIVE_BYTES)
    except ConnectionError:
        return b""


def is_whole(request: bytes) -> bool:
    """True if this is a whole request: a client sends its next one after the answer."""
    head, end, body = request.partition(b"\r\n\r\n")
    if not end:
        return False
    after = head.lower().partition(_LENGTH)[2]
    return len(body) >= int(after.partition(b"\r\n")[0] or 0)
