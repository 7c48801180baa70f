"""Publishing the same requests over and over, with a window of them in the pipe of each connection."""

import itertools
import select
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Self

from bench import wire
from bench.peers.protocol import AnswerCounter
from bench.run import LoadError

_STALLED_S = 30.0
_LOOK_EVERY_S = 0.25
UNLIMITED = 1 << 62
_RECEIVE_BYTES = 65536
_LONGEST_WINDOW = 1000  # A larger one is sent in several pieces.


class Lane:
    """One connection. What is sent repeats itself, so any stretch of the stream is one slice of a buffer.

    requests  what is sent, in turn; all have the same size
    window    the most requests that may be unanswered
    patience  answers for which the kernel wakes this process; they must have the size of `wire.OK_FRAME` if it is not 1
    """

    __slots__ = (
        "_answered",
        "_answers_per_request",
        "_counter",
        "_cycle_bytes",
        "_is_patient",
        "_size",
        "_stream",
        "window",
        "acked",
        "limit",
        "sent_bytes",
        "sock",
    )

    def __init__(
        self,
        sock: socket.socket,
        requests: Sequence[bytes],
        window: int,
        counter: AnswerCounter,
        *,
        answers_per_request: int = 1,
        patience: int = 1,
    ) -> None:
        sock.setblocking(False)
        if patience > 1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, patience * wire.OK_BYTES)
        self._is_patient = patience > 1
        self.sock = sock
        self._size = len(requests[0])
        self._cycle_bytes = self._size * len(requests)
        more = itertools.islice(itertools.cycle(requests), min(window, _LONGEST_WINDOW))
        self._stream = memoryview(b"".join((*requests, *more)))
        self.window = window
        self._counter = counter
        self._answers_per_request = answers_per_request
        self._answered = 0
        self.limit = UNLIMITED
        self.sent_bytes = 0
        self.acked = 0

    def push(self) -> None:
        """Send what the window has room for, or what the socket takes."""
        size = self._size
        room = min(self.acked + self.window, self.limit) * size - self.sent_bytes
        if room > 0:
            start = self.sent_bytes % self._cycle_bytes
            try:
                self.sent_bytes += self.sock.send(self._stream[start : start + room])
            except BlockingIOError:
                return
        if self._is_patient and self.sent_bytes == self.limit * size:
            self._hurry()

    def pull(self) -> None:
        """Count the answers that are there."""
        try:
            data = self.sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("the server closed the connection")
        self._answered += self._counter.feed(data)
        self.acked = self._answered // self._answers_per_request
        if len(data) == _RECEIVE_BYTES:
            self.pull()  # What is left makes no new edge.

    def finish(self) -> None:
        """Begin no further command."""
        self.limit = min(self.limit, -(-self.sent_bytes // self._size))
        self.push()

    def _hurry(self) -> None:
        """The answers that are still to come may be fewer than a wake takes."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self._is_patient = False

    @property
    def is_done(self) -> bool:
        return self.acked >= self.limit

    def close(self) -> None:
        self.sock.close()


class Pipeline:
    """Lanes that send at the same time, in one thread."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._poll = select.epoll()
        self._lanes = {lane.sock.fileno(): lane for lane in lanes}
        for number in self._lanes:
            # Edge-triggered: asking for EPOLLOUT all the time then costs nothing.
            self._poll.register(number, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

    @classmethod
    def to_nsqd(cls, port: int, command: bytes, *, connections: int, window: int, answers_per_wake: int = 1) -> Self:
        """Return `connections` lanes that send `command` to an nsqd, each with at most `window` of them unanswered.

        With `answers_per_wake`, the kernel wakes this process for that many answers at once: a peer that sends
        each OK by itself then has the processor for its own work.
        """
        return cls(
            Lane(wire.connect(port), [command], window, wire.OkCounter(), patience=answers_per_wake)
            for _ in range(connections)
        )

    def send(self, *, commands: int, seconds: float = UNLIMITED) -> int:
        """Send up to `commands` (rounded up to a multiple of the connections) for up to `seconds`.

        Returns the number of commands that were answered, which are all that were sent.
        """
        lanes = self._lanes.values()
        acked = sum(lane.acked for lane in lanes)
        for lane in lanes:
            lane.limit = lane.acked - (-commands // len(lanes))
        self._exchange(time.perf_counter() + seconds)
        for lane in lanes:
            lane.limit = lane.acked
        return sum(lane.acked for lane in lanes) - acked

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
