"""A lone message every 10 ms, one publisher, one consumer: microseconds from before PUB to after receive."""

import select
import socket
import struct
import time

from bench import wire
from bench.admin import Admin
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch

EVERY_S = 0.01
RDY = 100
WARM_UP = 20
_STALLED_S = 5.0
_ID = slice(10, 26)
_SENT_NS = struct.Struct(">q")
_SENT_NS_AT = 26


class Probe:
    """Sends messages that carry their time of sending, and notes how old they are when they arrive."""

    def __init__(self, port: int) -> None:
        self.publisher = wire.connect(port)
        self.consumer = wire.connect(port)
        self.consumer.sendall(wire.sub())
        wire.FrameReader(self.consumer).expect_ok()
        self.consumer.sendall(wire.rdy(RDY))
        self.published = 0
        self.ages_us: list[float] = []
        self._tail = b""

    def publish(self) -> None:
        padding = bytes(wire.BODY_BYTES - _SENT_NS.size)
        self.publisher.sendall(wire.pub(_SENT_NS.pack(time.perf_counter_ns()) + padding))
        self.published += 1

    def pull(self, sock: socket.socket) -> None:
        """Take what arrived on the publisher's or the consumer's connection."""
        data = sock.recv(65536)
        now_ns = time.perf_counter_ns()
        if not data:
            raise ConnectionError("nsqd closed a connection")
        if sock is self.consumer:
            self._take(data, now_ns)

    def _take(self, data: bytes, now_ns: int) -> None:
        frames, self._tail = wire.split_frames(self._tail + data)
        for kind, body in frames:
            if kind == wire.MESSAGE:
                self.ages_us.append((now_ns - _SENT_NS.unpack_from(body, _SENT_NS_AT)[0]) / 1000)
                self.consumer.sendall(b"FIN %s\n" % body[_ID])
            elif wire.is_heartbeat(kind, body):
                self.consumer.sendall(wire.NOP)
            else:
                raise LoadError(f"expected a message, got {body[:80]!r}")

    def close(self) -> None:
        self.publisher.close()
        self.consumer.close()


def load(endpoint: Endpoint, amount: Amount) -> Run:
    """The value is the median; `p99_us` and `max_us` are in the details."""
    Admin(endpoint.http_port).create()
    probe = Probe(endpoint.tcp_port)
    watch = Stopwatch(endpoint.pid)
    _publish_every(EVERY_S, min(amount.messages, int(amount.seconds / EVERY_S)) + WARM_UP, probe)
    watch.stop()
    probe.close()
    ages_us = sorted(probe.ages_us[WARM_UP:])
    return watch.run(_quantile(ages_us, 0.5), len(ages_us), p99_us=_quantile(ages_us, 0.99), max_us=ages_us[-1])


def _publish_every(every_s: float, count: int, probe: Probe) -> None:
    """Publish on time whether or not the last message has arrived: waiting for it would fall into step with
    a server that sends on a timer."""
    due_s = time.perf_counter()
    socks = [probe.consumer, probe.publisher]
    while len(probe.ages_us) < count:
        now_s = time.perf_counter()
        if probe.published < count and now_s >= due_s:
            probe.publish()
            due_s += every_s
            continue
        wait_s = due_s - now_s if probe.published < count else _STALLED_S
        readable, _, _ = select.select(socks, [], [], wait_s)
        if not readable and probe.published == count:
            raise LoadError(f"{len(probe.ages_us)} of {count} messages delivered")
        for sock in readable:
            probe.pull(sock)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
