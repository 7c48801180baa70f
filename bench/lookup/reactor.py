"""An epoll with handlers and timers: what a cluster of one process needs of an event loop, and nothing else."""

import heapq
import select
import socket
import time
from collections.abc import Callable
from itertools import count

from bench.run import LoadError

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
BROKEN = select.EPOLLERR | select.EPOLLHUP
_LOOK_EVERY_S = 1.0


class Reactor:
    def __init__(self) -> None:
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()  # Timers of the same moment; callables do not compare.

    def watch(self, sock: socket.socket, events: int, handler: Callable[[int], None]) -> None:
        """Call `handler(events)` from now on; in place of the handler that the socket had."""
        number = sock.fileno()
        if number in self._handlers:
            self._poll.modify(number, events)
        else:
            self._poll.register(number, events)
        self._handlers[number] = handler

    def forget(self, sock: socket.socket) -> None:
        """Before the socket is closed; nothing when it is not watched."""
        if self._handlers.pop(sock.fileno(), None):
            self._poll.unregister(sock)

    def at(self, due_s: float, action: Callable[[], None]) -> None:
        """Call `action` once, at this time of `time.perf_counter`."""
        heapq.heappush(self._timers, (due_s, next(self._order), action))

    def run_until(self, is_done: Callable[[], bool], *, within_s: float, what: str) -> None:
        """Raises LoadError when it is not done in time, and what a handler raises."""
        poll, handlers, timers, clock = self._poll.poll, self._handlers, self._timers, time.perf_counter
        deadline_s = clock() + within_s
        while not is_done():
            now_s = clock()
            if now_s > deadline_s:
                raise LoadError(f"{what}: not within {within_s:g} s")
            while timers and timers[0][0] <= now_s:
                heapq.heappop(timers)[2]()
            wait_s = min(timers[0][0] - now_s if timers else _LOOK_EVERY_S, deadline_s - now_s)
            for number, events in poll(max(wait_s, 0.0)):
                # An earlier handler of this batch may have closed it.
                if handler := handlers.get(number):
                    handler(events)

    def close(self) -> None:
        self._poll.close()
