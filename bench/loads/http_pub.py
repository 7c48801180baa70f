"""Sixteen keep-alive connections to POST /pub, each with one request outstanding. Requests per second."""

import select
import socket
import time

from bench import wire
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch

CONNECTIONS = 16
_STALLED_S = 30.0
_END = b"\r\n\r\nOK"


def load(endpoint: Endpoint, amount: Amount) -> Run:
    request = _request(endpoint.http_port)
    socks = [_connect(endpoint.http_port) for _ in range(CONNECTIONS)]
    watch = Stopwatch(endpoint.pid)
    messages = _exchange(socks, request, watch.started_s + amount.seconds, amount.messages)
    watch.stop()
    for sock in socks:
        sock.close()
    return watch.rate(messages)


def _request(port: int) -> bytes:
    lines = (
        f"POST /pub?topic={wire.TOPIC} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Content-Length: {wire.BODY_BYTES}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + wire.BODY


def _connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _exchange(socks: list[socket.socket], request: bytes, deadline_s: float, limit: int) -> int:
    """Keep one request on each socket until the deadline; returns how many were answered."""
    poll = select.epoll()
    ways = {}
    for sock in socks:
        poll.register(sock, select.EPOLLIN)
        ways[sock.fileno()] = (sock.send, sock.recv)
        sock.sendall(request)
    tails: dict[int, bytes] = {}
    answered, outstanding = 0, len(socks)
    while outstanding:
        events = poll.poll(_STALLED_S)
        if not events:
            raise LoadError(f"no answer to POST /pub for {_STALLED_S:g} s")
        more = time.perf_counter() < deadline_s and answered < limit
        for number, _ in events:
            send, receive = ways[number]
            if not _is_whole(receive(4096), number, tails):
                continue
            answered += 1
            if more:
                send(request)
            else:
                outstanding -= 1
    poll.close()
    return answered


def _is_whole(data: bytes, number: int, tails: dict[int, bytes]) -> bool:
    """Whether `data` completes the response; a part is kept in `tails`. Raises LoadError unless 200 OK."""
    if not data:
        raise LoadError("nsqd closed an HTTP connection")
    if tails and number in tails:
        data = tails.pop(number) + data
    if data.startswith(b"HTTP/1.1 200 ") and data.endswith(_END):
        return True
    if b"\r\n\r\n" in data and not data.endswith((b"\r\n\r\n", b"\r\n\r\nO")):
        raise LoadError(f"expected 200 OK, got {data[:200]!r}")
    tails[number] = data
    return False
