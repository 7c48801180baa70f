"""The nsqds: each connects, identifies itself, registers all it has, and pings from then on."""

import errno
import itertools
import json
import random
import socket
import struct
import time

from bench.lookup.cluster import OK, PING, Cluster
from bench.lookup.reactor import BROKEN, READ, WRITE, Reactor
from bench.run import LoadError

PING_EVERY_S = 15.0
FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 0.1, 5.0
ONE_AT_A_TIME = 1
_RECEIVE_BYTES = 65536
_ANSWERS_PER_WAKE = 32  # With many more, answers that come in small pieces fill the socket's buffer before.
_MANY_OKS = OK * (2 * _RECEIVE_BYTES // len(OK))
_SIZE = struct.Struct(">i")


class Peer:
    """One nsqd. It is registered when every one of its registrations was answered."""

    __slots__ = (
        "_answered",
        "_expected_bytes",
        "_failures",
        "_fleet",
        "_identify",
        "_is_full",
        "_sent_bytes",
        "_sock",
        "_tail",
        "is_registered",
    )

    def __init__(self, fleet: "Fleet", identify: bytes) -> None:
        self._fleet = fleet
        self._identify = identify
        self._failures = 0
        self._reset()

    def _reset(self) -> None:
        self._tail = b""
        self._answered = self._expected_bytes = self._sent_bytes = 0
        self._is_full = self.is_registered = False

    def connect(self) -> None:
        self._sock = socket.socket()
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._sock.connect_ex(("127.0.0.1", self._fleet.port)) in (0, errno.EINPROGRESS):
            self._fleet.reactor.watch(self._sock, WRITE, self._on_connected)
        else:
            self._lose()

    def ping(self) -> None:
        self._send(PING)

    def close(self) -> None:
        self._fleet.reactor.forget(self._sock)
        self._sock.close()

    def _on_connected(self, events: int) -> None:
        if events & BROKEN:
            self._lose()
            return
        self._fleet.reactor.watch(self._sock, READ, self._on_identified)
        self._send(self._identify)

    def _on_identified(self, events: int) -> None:
        data = self._receive()
        if data is None:
            return
        self._tail += data
        if len(self._tail) < _SIZE.size or len(self._tail) < _SIZE.size + _SIZE.unpack_from(self._tail)[0]:
            return
        answer, self._tail = self._tail[_SIZE.size :], b""
        if not answer.startswith(b"{") or "version" not in json.loads(answer):
            raise LoadError(f"answer to IDENTIFY: {answer[:80]!r}")
        self._failures = 0
        self._fleet.reactor.watch(self._sock, READ, self._on_registered)
        self._register()

    def _register(self) -> None:
        """Send what the window has room for, or what the socket takes."""
        fleet = self._fleet
        end = fleet.ends[min(self._answered + fleet.window, len(fleet.ends) - 1)]
        if end > self._sent_bytes:
            sent_bytes = self._send(fleet.stream[self._sent_bytes : end])
            if sent_bytes is None:
                return
            self._sent_bytes += sent_bytes
        self._expect(min(fleet.window, len(fleet.ends) - 1 - self._answered, _ANSWERS_PER_WAKE))
        if self._is_full != (self._sent_bytes < end):
            self._is_full = not self._is_full
            fleet.reactor.watch(self._sock, READ | WRITE if self._is_full else READ, self._on_registered)

    def _expect(self, answers: int) -> None:
        """Be woken for so many together: one at a time, they take the processor that nsqlookupd needs. Even a
        single one may come in two pieces, its size and its text."""
        expected_bytes = answers * len(OK) - len(self._tail)
        if expected_bytes != self._expected_bytes:
            self._expected_bytes = expected_bytes
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, expected_bytes)

    def _on_registered(self, events: int) -> None:
        if events & ~WRITE:
            oks = self._oks()
            if oks is None:
                return
            self._answered += oks
            if self._answered == len(self._fleet.ends) - 1:
                self.is_registered = True
                self._fleet.registered += 1
                self._expect(1)
                self._fleet.reactor.watch(self._sock, READ, self._on_pinged)
                return
        self._register()

    def _on_pinged(self, events: int) -> None:
        self._oks()

    def _oks(self) -> int | None:
        """How many came; None when the connection is lost. Raises LoadError at another answer."""
        received = self._receive()
        if received is None:
            return None
        data = self._tail + received
        if data != _MANY_OKS[: len(data)]:
            raise LoadError(f"expected OK, got {data[:80]!r}")
        oks = len(data) // len(OK)
        self._tail = data[oks * len(OK) :]
        return oks

    def _send(self, data: bytes | memoryview) -> int | None:
        """How many bytes the socket took; None when the connection is lost."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._lose()
            return None

    def _receive(self) -> bytes | None:
        """What is there; None when the connection is lost."""
        try:
            data = self._sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self._lose()
            return None
        return data

    def _lose(self) -> None:
        """Try again later, as long as the fleet may lose its nsqlookupd."""
        fleet = self._fleet
        if not fleet.may_lose:
            raise LoadError("nsqlookupd closed the connection of a peer, or took none")
        self.close()
        fleet.registered -= self.is_registered
        self._reset()
        fleet.reactor.at(time.perf_counter() + fleet.back_off_s(self._failures), self.connect)
        self._failures += 1


class Fleet:
    """All nsqds. `window` is how many registrations of each may be unanswered: one, or (None) all of them.

    `may_lose` says whether a peer that loses its connection comes back, or is an error.
    """

    def __init__(self, reactor: Reactor, tcp_port: int, cluster: Cluster, window: int | None = None) -> None:
        self.reactor = reactor
        self.port = tcp_port
        self.stream = memoryview(b"".join(cluster.registrations))
        self.ends = (0, *itertools.accumulate(map(len, cluster.registrations)))
        self.window = window or len(cluster.registrations)
        self.may_lose = False
        self.registered = 0
        self._chance = random.Random(1)
        self._peers = [Peer(self, cluster.identify(number)) for number in range(cluster.peers)]
        self._turns = itertools.cycle(self._peers)

    def register(self, within_s: float) -> float:
        """Connect and register everything; the seconds that it took. From then on they ping."""
        started_s = time.perf_counter()
        for peer in self._peers:
            peer.connect()
        self.wait_until_registered(within_s)
        elapsed_s = time.perf_counter() - started_s
        self._ping()
        return elapsed_s

    def wait_until_registered(self, within_s: float) -> None:
        self.reactor.run_until(
            lambda: self.registered == len(self._peers), within_s=within_s, what="all nsqds have registered"
        )

    def wait_until_registered_anew(self, within_s: float) -> None:
        """When nsqlookupd was killed just now: the connections that are lost, first."""
        self.reactor.run_until(lambda: not self.registered, within_s=within_s, what="all nsqds lost their connection")
        self.wait_until_registered(within_s)

    def back_off_s(self, failures: int) -> float:
        """Doubles up to the longest; then a chance takes up to half of it off, so that not all come at once."""
        longest_s = min(FIRST_BACK_OFF_S * (1 << min(failures, 10)), LONGEST_BACK_OFF_S)
        return longest_s * self._chance.uniform(0.5, 1.0)

    def close(self) -> None:
        for peer in self._peers:
            peer.close()

    def _ping(self) -> None:
        """One peer's turn. Each has it every 15 s, no two at once."""
        peer = next(self._turns)
        if peer.is_registered:
            peer.ping()
        self.reactor.at(time.perf_counter() + PING_EVERY_S / len(self._peers), self._ping)
