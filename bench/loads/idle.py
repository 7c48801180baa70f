"""Growth of nsqd's resident memory per idle connection, in KB, over 5,000 that have identified themselves.

Afterwards each of them publishes a message: all are still served.
"""

import resource
import socket
import time

from bench import procfs, wire
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch

CONNECTIONS = 5000
WARM_UP = 50
_SPARE_FILES = 100
_SETTLE_S = 1.0


def load(endpoint: Endpoint, amount: Amount) -> Run:
    """`amount` is not used: fewer connections would measure the allocator's steps."""
    _check_file_limit()
    warm = [_idle(endpoint.tcp_port) for _ in range(WARM_UP)]
    before_bytes = procfs.rss_bytes(endpoint.pid)
    watch = Stopwatch(endpoint.pid)
    idle = [_idle(endpoint.tcp_port) for _ in range(CONNECTIONS)]
    watch.stop()
    time.sleep(_SETTLE_S)
    grown_bytes = procfs.rss_bytes(endpoint.pid) - before_bytes
    _check_served(warm + idle)
    return watch.run(grown_bytes / CONNECTIONS / 1e3, CONNECTIONS, connects_per_s=CONNECTIONS / watch.elapsed_s)


def _check_file_limit() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < CONNECTIONS + WARM_UP + _SPARE_FILES:
        raise LoadError(f"only {limit} open files allowed (ulimit -n), {CONNECTIONS} connections wanted")


def _idle(port: int) -> socket.socket:
    sock = wire.connect(port)
    sock.sendall(wire.identify())
    wire.FrameReader(sock).expect_ok()
    return sock


def _check_served(socks: list[socket.socket]) -> None:
    command = wire.NOP + wire.pub()
    for sock in socks:
        sock.sendall(command)
    for sock in socks:
        wire.FrameReader(sock).expect_ok()
        sock.close()
