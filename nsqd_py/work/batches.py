"""Messages that are collected for one call, and the threads that take them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition
from time import monotonic

from nsqd_py.client.blocking.backend import THREADS
from nsqd_py.client.message import Message, MessageBatch

_LONGEST_WAIT_S = 60.0


class Collector:
    """Messages that wait until they are enough for a call, or until the first one has waited for `within_s`.

    failure  the error that ended a thread of it
    """

    def __init__(self, most: int, within_s: float, clock: Callable[[], float] = monotonic) -> None:
        self.failure: BaseException | None = None
        self._most = most
        self._within_s = within_s
        self._clock = clock
        self._waiting: deque[tuple[float, Message]] = deque()
        self._changed = Condition()
        self._is_closed = False

    def start(self, count: int, handle: Callable[[list[Message]], None]) -> None:
        """Start threads that handle what is collected, and finish what is not answered then."""
        for number in range(count):
            THREADS.spawn(f"nsqd-py batches {number}", self._work, handle)

    def _work(self, handle: Callable[[list[Message]], None]) -> None:
        try:
            while (messages := self.take()) is not None:
                if messages:
                    handle(messages)
                for message in messages:
                    message.settle()
        except BaseException as error:  # noqa: BLE001 - `Running` ends because of it
            self.failure = error

    def put(self, batch: MessageBatch) -> None:
        """Add messages that have come."""
        now_s = self._clock()
        with self._changed:
            self._waiting.extend((now_s, message) for message in batch.messages())
            self._changed.notify()

    def hurry(self) -> None:
        """Let no message wait for others any more."""
        with self._changed:
            self._within_s = 0.0
            self._changed.notify_all()

    def close(self) -> None:
        """Let `take` return None from now on: messages that still wait are of a consumer that has ended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def wait_s(self, now_s: float) -> float:
        """Return the time until messages can be taken."""
        if len(self._waiting) >= self._most:
            return 0.0
        if not self._waiting:
            return _LONGEST_WAIT_S
        return max(0.0, self._waiting[0][0] + self._within_s - now_s)

    def take(self) -> list[Message] | None:
        """Wait for the messages of a call, and remove them; None once this is closed. Those that timed out are left out."""
        with self._changed:
            while not self._is_closed:
                wait_s = self.wait_s(self._clock())
                if wait_s <= 0:
                    count = min(self._most, len(self._waiting))
                    taken = [self._waiting.popleft()[1] for _ in range(count)]
                    self._changed.notify()  # more may be left, for another thread
                    return [message for message in taken if message.is_live]
                self._changed.wait(wait_s)
        return None
