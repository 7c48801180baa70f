"""Messages that are collected for one call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Condition
from time import monotonic
from typing import Any

from nsqd_py.client.blocking.backend import THREADS
from nsqd_py.client.message import Message, MessageBatch
from nsqd_py.work.calling import ENDINGS, Calls
from nsqd_py.work.dead_letters import describe
from nsqd_py.work.handlers import Given
from nsqd_py.work.middleware import Call
from nsqd_py.work.outcomes import BatchFailed, Undecodable, decide

_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Opened:
    """The messages of a batch that could be decoded, by their indexes, and the errors of the others."""

    given: Given
    indexes: list[int]
    errors: dict[int, BaseException]


class BatchCalls(Calls):
    """The calls of a handler that gets batches."""

    def handle_batch(self, messages: list[Message], submit: Callable[[Any], Future[Any]] | None) -> None:
        """Call the handler, and answer all messages. `submit` runs coroutines.

        Raises SystemExit and KeyboardInterrupt of the handler, after the answers.
        """
        if self._pace is not None and not self._pace.wait():
            for message in messages:
                message.requeue(0, backoff=False)
            return
        bodies = [message.body for message in messages]
        fail = partial(self._fail_batch, messages, bodies)
        item = f"{len(messages)} messages"
        if self._limits is not None and self._limit_s is not None and submit is None:
            self._call_within_limit(item, partial(self.call_batch, messages, bodies), fail)
        else:
            try:
                if submit is None:
                    self.call_batch(messages, bodies)
                else:
                    submit(self.call_batch_async(messages, bodies)).result()
            except BaseException as error:
                fail(error)
                if isinstance(error, ENDINGS):
                    raise
        for message in messages:
            message.settle()

    def call_batch(self, messages: list[Message], bodies: list[bytes]) -> None:
        """Call the handler within its middleware. Raises its errors, and BatchFailed."""
        call = Call(self.handler, messages, partial(self._call_with, messages, bodies))
        for middleware in self._middleware:
            call = Call(self.handler, messages, partial(middleware.around, messages[0], call))
        call()

    def _call_with(self, messages: list[Message], bodies: list[bytes]) -> None:
        opened = self._open_all(messages, bodies)
        try:
            if opened.indexes:
                self._check(self._pass(opened.given))
        except BaseException as error:
            self._merge(opened, error)
            raise
        self._merge(opened, None)

    async def call_batch_async(self, messages: list[Message], bodies: list[bytes]) -> None:
        """Do as `call_batch`, with a coroutine function."""
        call = Call(self.handler, messages, partial(self._await_with, messages, bodies))
        for middleware in self._middleware:
            call = Call(self.handler, messages, partial(middleware.around_async, messages[0], call))
        scope = asyncio.timeout(self._limit_s)
        try:
            async with scope:
                await call()
        except TimeoutError:
            if scope.expired():
                raise self._over_limit() from None
            raise

    async def _await_with(self, messages: list[Message], bodies: list[bytes]) -> None:
        opened = self._open_all(messages, bodies)
        try:
            if opened.indexes:
                await self._pass(opened.given)
        except BaseException as error:
            self._merge(opened, error)
            raise
        self._merge(opened, None)

    def _open_all(self, messages: list[Message], bodies: list[bytes]) -> _Opened:
        given: list[Given] = []
        indexes: list[int] = []
        errors: dict[int, BaseException] = {}
        for index, (message, body) in enumerate(zip(messages, bodies, strict=True)):
            try:
                given.append(self._open(message, body))
            except Undecodable as error:
                errors[index] = error
            else:
                indexes.append(index)
        values = [each.value for each in given]
        headers = [each.headers for each in given]
        return _Opened(Given(values, [each.message for each in given], headers, None), indexes, errors)

    @staticmethod
    def _merge(opened: _Opened, error: BaseException | None) -> None:
        """Raise BatchFailed if messages failed, by their indexes in the batch; not for one error of all of them."""
        errors = dict(opened.errors)
        if isinstance(error, BatchFailed):
            errors |= {opened.indexes[index]: each for index, each in error.errors.items()}
        elif error is not None and errors:
            errors |= dict.fromkeys(opened.indexes, error)
        if errors:
            raise BatchFailed(errors) from error

    def _fail_batch(self, messages: list[Message], bodies: list[bytes], error: BaseException) -> None:
        """Answer the messages that failed. The others are finished."""
        if isinstance(error, BatchFailed):
            for index, each in error.errors.items():
                self.fail(messages[index], bodies[index], each)
            return
        self._log.exception("%s failed on %d messages: %s", self.handler, len(messages), describe(error))
        for message, body in zip(messages, bodies, strict=True):
            self.settle(message, body, decide(error, message.attempts, self.handler.retry, self._chance))


class Collector:
    """Messages that wait until they are enough for a call, or until the first one has waited for `within_s`."""

    def __init__(self, most: int, within_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._within_s = within_s
        self._clock = clock
        self._waiting: deque[tuple[float, Message]] = deque()
        self._changed = Condition()
        self._is_closed = False

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
        """Let `take` return None from now on: messages that still wait are of consumers that have ended."""
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


class BatchWorkers:
    """The threads that take collected messages, and handle them.

    failure  the SystemExit or KeyboardInterrupt that a handler raised
    """

    def __init__(
        self, calls: BatchCalls, collector: Collector, submit: Callable[[Any], Future[Any]] | None
    ) -> None:
        self.failure: BaseException | None = None
        self._calls = calls
        self._collector = collector
        self._submit = submit

    def start(self, count: int) -> None:
        for number in range(count):
            THREADS.spawn(f"nsqd-py batches {number}", self._work)

    def _work(self) -> None:
        try:
            while (messages := self._collector.take()) is not None:
                if messages:
                    self._calls.handle_batch(messages, self._submit)
        except BaseException as error:  # noqa: BLE001 - `Running` ends because of it
            self.failure = error
