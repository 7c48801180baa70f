"""Processor time of nsqd in microseconds for each heartbeat, while 10,000 connections do nothing but answer them.

Each connection asks for a heartbeat every 10 s, in place of the default of 30 s.
"""

import resource
import select
import socket
import time

from bench import wire
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch

CONNECTIONS = 10_000
_SPARE_FILES = 100
_SETTLE_S = 2.0
_HEARTBEAT_FRAME_BYTES = 19
_IDENTIFY = wire.identify(b'{"heartbeat_interval":10000}')


def load(endpoint: Endpoint, amount: Amount) -> Run:
    _raise_file_limit()
    socks = {sock.fileno(): sock for sock in (_idle(endpoint.tcp_port) for _ in range(CONNECTIONS))}
    poll = select.epoll()
    for number in socks:
        poll.register(number, select.EPOLLIN)
    _answer(socks, poll, _SETTLE_S)
    watch = Stopwatch(endpoint.pid)
    heartbeats = _answer(socks, poll, amount.seconds)
    watch.stop()
    for sock in socks.values():
        sock.close()
    return watch.run(watch.server_cpu_s / heartbeats * 1e6, heartbeats)


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < CONNECTIONS + _SPARE_FILES:
        raise LoadError(f"only {hard} open files allowed (ulimit -Hn), {CONNECTIONS} connections wanted")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _idle(port: int) -> socket.socket:
    sock = wire.connect(port)
    sock.sendall(_IDENTIFY)
    wire.FrameReader(sock).expect_ok()
    return sock


def _answer(socks: dict[int, socket.socket], poll: select.epoll, seconds: float) -> int:
    """Answer heartbeats for so long; how many there were."""
    deadline_s = time.perf_counter() + seconds
    heartbeats = 0
    while (left_s := deadline_s - time.perf_counter()) > 0:
        for number, _ in poll.poll(left_s):
            data = socks[number].recv(4096)
            if not data:
                raise LoadError("nsqd closed an idle connection")
            heartbeats += len(data) // _HEARTBEAT_FRAME_BYTES
            socks[number].send(wire.NOP)
    return heartbeats
