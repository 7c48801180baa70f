"""What tasks count, and how the driver hears of it while they run: datagrams to a socket of the driver.

Spark tells the driver of a task when it ends. So each process that works on a task says a few times a second how far
it is; what it says replaces what it said before, and a datagram that is lost is made up by the next. The driver
answers where it wants an end. Nothing depends on that: where no datagrams pass, the figures come when tasks end.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import threading
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from struct import Struct
from time import monotonic
from typing import Any, Literal, NamedTuple

from spark.replay.errors import Stopped

REPORT_INTERVAL_S = 0.2
_STOP = b"stop"
_MOST_FAILURE_BYTES = 1000
_Role = Literal["read", "send"]
_ROLES: dict[_Role, int] = {"read": 0, "send": 1}


@dataclass(slots=True)
class Counts:
    """Of one task, or of several. Bytes are of files for `read`, of bodies for `sent`."""

    read: int = 0
    read_bytes: int = 0
    matched: int = 0
    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0

    def add(self, other: Counts) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


_REPORT = Struct(f"<16sIIB{len(fields(Counts))}Q")


class LineAddress(NamedTuple):
    """Where the driver listens, and what it knows its executors by."""

    host: str
    port: int
    token: bytes


class Key(NamedTuple):
    """Who counts: a stage reads or sends, in one task; a later attempt replaces an earlier one."""

    role: int
    task: int


class DriverLine:
    """The driver's end. `totals`, and `failure`, what the first task that failed says, may be asked at any time."""

    def __init__(self, host: str) -> None:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0][0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self._socket.settimeout(REPORT_INTERVAL_S)
        self.address = LineAddress(host, self._socket.getsockname()[1], secrets.token_bytes(16))
        self._counts: dict[Key, tuple[int, Counts]] = {}
        self._peers: set[Any] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self.is_stopping = False
        self.failure = ""
        self._thread = threading.Thread(target=self._listen, name="replay-line", daemon=True)
        self._thread.start()

    def totals(self) -> Counts:
        found = Counts()
        with self._lock:
            for _, counts in self._counts.values():
                found.add(counts)
        return found

    def forget(self) -> None:
        """Before another job on the same line."""
        with self._lock:
            self._counts.clear()

    def stop(self) -> None:
        """Tell all who are heard of to end."""
        self.is_stopping = True
        with self._lock:
            peers = list(self._peers)
        for peer in peers:
            self._answer(peer)

    def close(self) -> None:
        self._is_closed = True
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while not self._is_closed:
            try:
                data, peer = self._socket.recvfrom(4096)
            except OSError:  # a time-out is one
                continue
            if len(data) >= _REPORT.size and data[:16] == self.address.token:
                self._hear(data, peer)

    def _hear(self, data: bytes, peer: Any) -> None:
        _, task, attempt, role, *numbers = _REPORT.unpack_from(data)
        with self._lock:
            self._peers.add(peer)
            key = Key(role, task)
            if attempt >= self._counts.get(key, (0, None))[0]:
                self._counts[key] = attempt, Counts(*numbers)
        self.failure = self.failure or data[_REPORT.size :].decode(errors="replace")
        if self.is_stopping:
            self._answer(peer)

    def _answer(self, peer: Any) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(_STOP, peer)


class TaskLine:
    """A task's end. Whoever works calls `look` often, and waits with `rest`: both raise Stopped."""

    def __init__(
        self, address: LineAddress | None, role: _Role, task: int, attempt: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self.task = task
        self.counts = Counts()
        self._clock = clock
        self._head = (task, attempt, _ROLES[role])
        self._token = address.token if address else b""
        self._socket = _connected(address)
        self._reported_s = 0.0
        self.is_stopped = False

    def look(self) -> None:
        now_s = self._clock()
        if now_s - self._reported_s >= REPORT_INTERVAL_S:
            self._reported_s = now_s
            self.report()
            self._listen(0.0)
        if self.is_stopped:
            raise Stopped("stopped")

    def rest(self, seconds: float) -> None:
        """Wait; not longer than until the next report is due."""
        self.look()
        self._listen(min(seconds, REPORT_INTERVAL_S))
        if self.is_stopped:
            raise Stopped("stopped")

    def report(self, failure: str = "") -> None:
        """What was counted, now. With a failure, the driver ends the other tasks."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                text = failure.encode()[:_MOST_FAILURE_BYTES]
                self._socket.send(_REPORT.pack(self._token, *self._head, *astuple(self.counts)) + text)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _listen(self, seconds: float) -> None:
        poll = select.poll()
        if self._socket is not None:
            poll.register(self._socket, select.POLLIN)
        if poll.poll(seconds * 1000) and self._socket is not None:
            with contextlib.suppress(OSError):  # nobody listens there
                self.is_stopped = self._socket.recv(16) == _STOP or self.is_stopped


def _connected(address: LineAddress | None) -> socket.socket | None:
    if address is None:
        return None
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)[0][0]
        line = socket.socket(family, socket.SOCK_DGRAM)
        line.setblocking(False)
        line.connect((address.host, address.port))
    except OSError:
        return None
    return line
