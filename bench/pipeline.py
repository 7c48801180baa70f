"""Publishing one command over and over, with a window of commands in the pipe of each connection."""

import select
import socket
import time

from bench import wire
from bench.run import LoadError

_STALLED_S = 30.0
_LOOK_EVERY_S = 0.25
_UNLIMITED = 1 << 62


class Lane:
    """One connection. What is sent repeats itself, so any stretch of the stream is one slice of a buffer."""

    __slots__ = (
        "_acks",
        "_is_patient",
        "_size",
        "_sock",
        "_stream",
        "_window",
        "acked",
        "limit",
        "sent_bytes",
    )

    def __init__(self, sock: socket.socket, command: bytes, window: int, answers_per_wake: int) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, answers_per_wake * wire.OK_BYTES)
        self._is_patient = answers_per_wake > 1
        self._sock = sock
        self._size = len(command)
        self._stream = memoryview(command * (window + 1))
        self._window = window
        self._acks = wire.OkCounter()
        self.limit = _UNLIMITED
        self.sent_bytes = 0
        self.acked = 0

    def push(self) -> None:
        """Send what the window has room for, or what the socket takes."""
        size = self._size
        room = min(self.acked + self._window, self.limit) * size - self.sent_bytes
        if room > 0:
            start = self.sent_bytes % size
            try:
                self.sent_bytes += self._sock.send(self._stream[start : start + room])
            except BlockingIOError:
                return
        if self._is_patient and self.sent_bytes == self.limit * size:
            self._hurry()

    def pull(self) -> None:
        """Count the answers that are there."""
        try:
            data = self._sock.recv(65536)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("nsqd closed the connection")
        self.acked += self._acks.feed(data)

    def finish(self) -> None:
        """Begin no further command."""
        self.limit = min(self.limit, -(-self.sent_bytes // self._size))
        self.push()

    def _hurry(self) -> None:
        """The answers that are still to come may be fewer than a wake takes."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self._is_patient = False

    @property
    def is_done(self) -> bool:
        return self.acked >= self.limit

    def close(self) -> None:
        self._sock.close()


class Pipeline:
    """`connections` lanes that send `command`, each with at most `window` of them unanswered.

    With `answers_per_wake`, the kernel wakes this process for that many answers at once: a peer that sends
    each OK by itself then has the processor for its own work.
    """

    def __init__(self, port: int, command: bytes, *, connections: int, window: int, answers_per_wake: int = 1) -> None:
        self._poll = select.epoll()
        self._lanes: dict[int, Lane] = {}
        for _ in range(connections):
            sock = wire.connect(port)
            # Edge-triggered: asking for EPOLLOUT all the time then costs nothing.
            self._poll.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
            self._lanes[sock.fileno()] = Lane(sock, command, window, answers_per_wake)

    def send(self, *, commands: int, seconds: float = _UNLIMITED) -> int:
        """Send up to `commands` (rounded up to a multiple of the connections) for up to `seconds`.

        Returns the number of commands that were answered, which are all that were sent.
        """
        for lane in self._lanes.values():
            lane.limit = -(-commands // len(self._lanes))
        self._exchange(time.perf_counter() + seconds)
        return sum(lane.acked for lane in self._lanes.values())

    def close(self) -> None:
        self._poll.close()
        for lane in self._lanes.values():
            lane.close()

    def _exchange(self, deadline_s: float) -> None:
        lanes, poll, clock = self._lanes, self._poll.poll, time.perf_counter
        heard_s = clock()
        for lane in lanes.values():
            lane.push()
        while not all(lane.is_done for lane in lanes.values()):
            events = poll(_LOOK_EVERY_S)
            now_s = clock()
            if events:
                heard_s = now_s
            elif now_s - heard_s > _STALLED_S:
                raise LoadError(f"no answer to a publish for {_STALLED_S:g} s")
            if now_s >= deadline_s:
                deadline_s = float("inf")
                for lane in lanes.values():
                    lane.finish()
            for number, event in events:
                lane = lanes[number]
                if event & ~select.EPOLLOUT:
                    lane.pull()
                lane.push()
