"""The clients: keep-alive connections that ask /lookup for random topics, one request at a time."""

import re
import socket
import time
from dataclasses import dataclass
from random import Random

from bench.lookup.answers import Answers, is_chunked
from bench.lookup.cluster import Cluster
from bench.lookup.reactor import READ, Reactor
from bench.run import LoadError

ASKERS = 50
RETRY_S = 0.1
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.8, 1.2
_BUFFER_BYTES = 256 * 1024
_STALLED_S = 10.0
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"  # JSON has no such bytes inside.
_CONTENT_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Window:
    """What the crowd saw for some seconds."""

    requests: int
    per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, latencies_s: list[float], elapsed_s: float) -> "Window":
        ordered = sorted(latencies_s)
        if not ordered:
            raise LoadError("no answer to /lookup")

        def quantile_ms(share: float) -> float:
            return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e3

        return cls(len(ordered), len(ordered) / elapsed_s, quantile_ms(0.5), quantile_ms(0.99), quantile_ms(1))

    def __str__(self) -> str:
        return (
            f"p50 {self.p50_ms:.2f} ms, p99 {self.p99_ms:.2f} ms, max {self.max_ms:.2f} ms"
            f" at {self.per_s:,.0f} requests/s"
        )


class Asker:
    """One client. With a pause it asks about that long after it last asked, without one as soon as it may."""

    __slots__ = (
        "_buffer",
        "_crowd",
        "_have",
        "_size",
        "_sock",
        "_topic",
        "_view",
        "asked_s",
        "is_connected",
        "is_waiting",
    )

    def __init__(self, crowd: "Crowd") -> None:
        self._crowd = crowd
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._have = 0
        self._size: int | None = None
        self._topic = 0
        self.asked_s = 0.0
        self.is_connected = self.is_waiting = False

    def connect(self) -> None:
        """Raises LoadError when nobody listens and the crowd may not lose its nsqlookupd."""
        self._sock = socket.socket()
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._sock.connect_ex(("127.0.0.1", self._crowd.port)):
            self._lose()
            return
        self._sock.setblocking(False)
        self.is_connected = True
        self._crowd.reactor.watch(self._sock, READ, self._on_answer)
        self.ask()

    def ask(self) -> None:
        """Nothing when the crowd is to be silent, or this one is between connections or asked already."""
        crowd = self._crowd
        if not (crowd.is_asking and self.is_connected) or self.is_waiting:
            return
        now_s = time.perf_counter()
        if now_s < self.asked_s + crowd.pause_s * _SHORTEST_PAUSE:
            return  # It reconnected while it paused, and then asked at once.
        self._topic = crowd.next_topic()
        self._have, self._size = 0, None
        self.is_waiting = True
        self.asked_s = now_s
        try:
            self._sock.send(crowd.requests[self._topic])
        except OSError:
            self._lose()

    def close(self) -> None:
        self._crowd.reactor.forget(self._sock)
        self._sock.close()

    def _on_answer(self, events: int) -> None:
        try:
            taken = self._sock.recv_into(self._view[self._have :])
        except BlockingIOError:
            return
        except OSError:
            taken = 0
        if not taken:
            self._lose()
            return
        self._have += taken
        if self._size is None:
            self._size = self._expected()
        if self._have == self._size or (not self._size and self._buffer.endswith(_LAST_CHUNK, 0, self._have)):
            self._finish()

    def _expected(self) -> int | None:
        """Bytes of the whole response; 0 when it comes in chunks, None when its head is not all there."""
        end = self._buffer.find(_HEAD_END, 0, self._have)
        if end < 0:
            return None
        length = _CONTENT_LENGTH.search(self._buffer, 0, end)
        if length:
            return end + len(_HEAD_END) + int(length[1])
        if not is_chunked(bytes(self._buffer[:end])):
            raise LoadError(f"a response of unknown length: {bytes(self._buffer[:end])!r}")
        return 0

    def _finish(self) -> None:
        now_s = time.perf_counter()
        self.is_waiting = False
        crowd = self._crowd
        crowd.latencies_s.append(now_s - self.asked_s)
        crowd.heard(self._topic, self._buffer, self._have)
        if crowd.pause_s:
            pause_s = crowd.pause_s * crowd.chance.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE)
            crowd.reactor.at(self.asked_s + pause_s, self.ask)
        else:
            self.ask()

    def _lose(self) -> None:
        if not self._crowd.may_lose:
            raise LoadError("nsqlookupd closed the connection of a client, or took none")
        self.close()
        self.is_connected = self.is_waiting = False
        self._crowd.reactor.at(time.perf_counter() + RETRY_S, self.connect)


class Crowd:
    """All clients. Every answer has to be right, unless `may_lose` says that nsqlookupd may be on its way up.

    `whole` holds the numbers of the topics that had a right answer since `want_all`.
    """

    def __init__(self, reactor: Reactor, http_port: int, cluster: Cluster) -> None:
        self.reactor = reactor
        self.port = http_port
        self.requests = [_request(http_port, topic) for topic in cluster.topic_names]
        self.chance = Random(2)
        self.pause_s = 0.0
        self.may_lose = self.is_asking = False
        self.latencies_s: list[float] = []
        self.whole: set[int] = set()
        self._wanted: list[int] = []
        self._answers = Answers(cluster)
        self._askers = [Asker(self) for _ in range(ASKERS)]
        for asker in self._askers:
            asker.connect()

    def ask(self, seconds: float, pause_s: float = 0.0) -> Window:
        """All clients for some seconds; raises LoadError at a wrong answer."""
        self.start(pause_s)
        started_s = time.perf_counter()
        ends_s = started_s + seconds
        self.reactor.run_until(lambda: time.perf_counter() >= ends_s, within_s=2 * seconds, what="asking")
        window = Window.of(self.latencies_s, time.perf_counter() - started_s)
        self.stop()
        return window

    def start(self, pause_s: float = 0.0) -> None:
        self.latencies_s = []
        self.pause_s = pause_s
        self.is_asking = True
        now_s = time.perf_counter()
        for number, asker in enumerate(self._askers):
            asker.asked_s = 0.0
            self.reactor.at(now_s + pause_s * number / len(self._askers), asker.ask)

    def stop(self) -> None:
        """Ask no more; take the answers that are due, and see those out who pause."""
        self.is_asking = False
        silent_s = time.perf_counter() + self.pause_s * _LONGEST_PAUSE
        self.reactor.run_until(
            lambda: time.perf_counter() >= silent_s and not any(asker.is_waiting for asker in self._askers),
            within_s=_STALLED_S,
            what="last answers",
        )

    def want_all(self) -> None:
        """From now on ask for topics that have no right answer yet, as long as there are any."""
        self.whole.clear()
        self._wanted = list(range(len(self.requests)))

    def is_whole(self) -> bool:
        return len(self.whole) == len(self.requests)

    def next_topic(self) -> int:
        chance, wanted = self.chance.random, self._wanted
        while wanted:
            place = int(chance() * len(wanted))
            if wanted[place] not in self.whole:
                return wanted[place]
            wanted[place] = wanted[-1]
            wanted.pop()
        return int(chance() * len(self.requests))

    def heard(self, topic: int, response: bytearray, size: int) -> None:
        if self._answers.is_right(response, size):
            self.whole.add(topic)
        elif not self.may_lose:
            raise LoadError(f"not all producers or channels of {topic}: {bytes(response[: min(size, 400)])!r}")

    def close(self) -> None:
        for asker in self._askers:
            asker.close()


def _request(port: int, topic: str) -> bytes:
    lines = (
        f"GET /lookup?topic={topic} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Accept: application/vnd.nsq; version=1.0",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n"
