"""A large cluster in one process: nsqds that answer `/stats`, and an nsqlookupd that names them. Run as a module.

    python -m tests.support.fake_cluster NODES TOPICS CHANNELS [MOVING]

prints the address of the nsqlookupd. MOVING is the part of the channels whose counts change with each answer.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import orjson
from gevent.server import StreamServer

LOCALHOST = "127.0.0.1"
_DIFFERENT_ANSWERS = 60
_TOPIC = re.compile(rb"[?&]topic=orders.region-(\d+)")


@contextmanager
def running(nodes: int, topics: int, channels: int, moving: float) -> Iterator[str]:
    """In a process of its own; the address of its nsqlookupd."""
    command = [sys.executable, "-m", "tests.support.fake_cluster", *map(str, (nodes, topics, channels, moving))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def channel(name: str, count: int) -> dict[str, Any]:
    return {
        "channel_name": name,
        "depth": count % 1000,
        "backend_depth": 0,
        "in_flight_count": count % 7,
        "deferred_count": 0,
        "message_count": count,
        "requeue_count": 0,
        "timeout_count": 0,
        "client_count": 2,
        "clients": None,
        "paused": False,
        "e2e_processing_latency": {"count": 0, "percentiles": None},
    }


def topic(number: int, channels: int, asked: int, moving: float) -> dict[str, Any]:
    moves = (number * 7919 % 100) < moving * 100
    count = 1000 + number + (asked * 10 if moves else 0)
    return {
        "topic_name": f"orders.region-{number:03d}",
        "depth": 0,
        "backend_depth": 0,
        "message_count": count,
        "message_bytes": count * 200,
        "paused": False,
        "e2e_processing_latency": {"count": 0, "percentiles": None},
        "channels": [channel(f"channel-{place}", count) for place in range(channels)],
    }


def stats(topics: list[dict[str, Any]]) -> bytes:
    return orjson.dumps({"version": "1.3.0", "health": "OK", "start_time": 1, "topics": topics})


def answers(topics: int, channels: int, moving: float) -> list[bytes]:
    """What each nsqd says, one time after the other; made before anybody asks."""
    return [stats([topic(number, channels, asked, moving) for number in range(topics)]) for asked in range(_DIFFERENT_ANSWERS)]


class FakeNsqd:
    def __init__(self, bodies: list[bytes], channels: int) -> None:
        self.bodies = bodies
        self.channels = channels
        self.asked = 0
        self.server = StreamServer((LOCALHOST, 0), self.serve)
        self.server.start()
        self.port: int = self.server.server_port

    def serve(self, sock: Any, peer: Any) -> None:
        with sock:
            head = sock.recv(65536).partition(b"\r\n")[0]
            if one := _TOPIC.search(head):
                answer(sock, stats([topic(int(one[1]), self.channels, 0, 0)]))
                return
            answer(sock, self.bodies[min(self.asked, len(self.bodies) - 1)])
            self.asked += 1


def answer(sock: Any, body: bytes) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)


def producer(port: int, topics: int) -> dict[str, Any]:
    names = [f"orders.region-{number:03d}" for number in range(topics)]
    return {
        "remote_address": f"{LOCALHOST}:{port}",
        "hostname": f"host-{port}",
        "broadcast_address": LOCALHOST,
        "tcp_port": port,
        "http_port": port,
        "version": "1.3.0",
        "topics": names,
        "tombstones": [False] * topics,
    }


def main(nodes: int, topics: int, channels: int, moving: float) -> None:
    bodies = answers(topics, channels, moving)
    fakes = [FakeNsqd(bodies, channels) for _ in range(nodes)]
    named = orjson.dumps({"producers": [producer(fake.port, topics) for fake in fakes]})

    def serve(sock: Any, peer: Any) -> None:
        with sock:
            sock.recv(65536)
            answer(sock, named)

    lookupd = StreamServer((LOCALHOST, 0), serve)
    lookupd.start()
    print(f"{LOCALHOST}:{lookupd.server_port}", flush=True)
    gevent.sleep(600)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), moving=float(sys.argv[4]) if len(sys.argv) > 4 else 0.1)
