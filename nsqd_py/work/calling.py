"""One call of a handler, for one message: its rate, its time limit, middleware, decoding, and the answer to the message."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

from nsqd_py.client.callables import check_handler_result
from nsqd_py.client.message import Message
from nsqd_py.protocol.envelope import MAGIC, unwrap
from nsqd_py.runtime.logs.lines import LineWriter
from nsqd_py.work.dead_letters import Store, dead_letter, describe
from nsqd_py.work.handlers import Given, Handler, Headers
from nsqd_py.work.middleware import Call, Middleware
from nsqd_py.work.outcomes import (
    DeadLetter,
    Dropped,
    Outcome,
    RequeueAfter,
    TimeLimitExceeded,
    Undecodable,
    decide,
)
from nsqd_py.work.pacing import Pace, TimeLimits

ENDINGS = (SystemExit, KeyboardInterrupt)  # after its message is answered, such an error ends the consumer
_WITHOUT_TRACE = (Undecodable, TimeLimitExceeded)  # the stack says nothing about them


@dataclass(eq=False)
class Counts:
    """How many messages of a handler were not simply finished.

    retried    failed, and come again
    dead       moved to the dead letters
    dropped    finished because the handler raised `Drop`
    timed_out  calls over their time limit
    """

    retried: int = 0
    dead: int = 0
    dropped: int = 0
    timed_out: int = 0
    lock: Lock = field(default_factory=Lock)

    def add(self, name: str) -> None:
        with self.lock:
            setattr(self, name, getattr(self, name) + 1)


class Calls:
    """The calls of one handler in one process.

    longest_defer_s  the longest delay of a message that nsqd takes
    store            publishes dead letters
    pace, limits     the rate of the calls, and the thread that ends those of threads; None without a rate or limit
    """

    def __init__(
        self,
        handler: Handler,
        *,
        store: Store,
        log: LineWriter,
        middleware: Sequence[Middleware] = (),
        longest_defer_s: float = 3600.0,
        pace: Pace | None = None,
        limits: TimeLimits | None = None,
        chance: Callable[[], float] = random.random,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.handler = handler
        self.counts = Counts()
        self._function = handler.function
        self._parameters = handler.parameters
        self._is_value_only = handler.parameters.is_value_only and handler.once is None
        self._limit_s = handler.time_limit_s
        self._middleware = tuple(reversed(middleware))
        self._store = store
        self._log = log
        self._longest_defer_s = longest_defer_s
        self._pace = pace
        self._limits = limits
        self._chance = chance
        self._clock_ns = clock_ns

    # ---- in a thread

    def handle(self, message: Message) -> None:
        """Call the handler, and answer the message unless that succeeds: then the consumer finishes it.

        Raises SystemExit and KeyboardInterrupt of the handler, after the answer.
        """
        if self._pace is not None and not self._pace.wait():
            message.requeue(0, backoff=False)
            return
        body = message.body
        if self._limits is not None and self._limit_s is not None:
            self._handle_in_time(message, body, self._limits, self._limit_s)
            return
        try:
            self.call(message, body)
        except BaseException as error:
            self.fail(message, body, error)
            if isinstance(error, ENDINGS):
                raise

    def _handle_in_time(self, message: Message, body: bytes, limits: TimeLimits, limit_s: float) -> None:
        call = limits.begin(limit_s, partial(self._exceed, message, body))
        try:
            self.call(message, body)
        except BaseException as error:
            if limits.end(call):
                self.fail(message, body, error)
            else:
                self._log.warning("%s raised after its time limit, for %s: %r", self.handler, message, error)
            if isinstance(error, ENDINGS):
                raise
        else:
            if not limits.end(call):
                self._log.warning("%s returned after its time limit, for %s", self.handler, message)

    def _exceed(self, message: Message, body: bytes) -> None:
        """Answer a message whose call is over its limit, in the thread of the limits."""
        self.fail(message, body, self._over_limit())

    def call(self, message: Message, body: bytes) -> None:
        """Call the handler within its middleware. `body` is the one that came. Raises its errors, and Undecodable."""
        if not self._middleware:
            self._call_function(message, body)
            return
        call = Call(self.handler, [message], partial(self._call_function, message, body))
        for middleware in self._middleware:
            call = Call(self.handler, [message], partial(middleware.around, message, call))
        call()

    def _call_function(self, message: Message, body: bytes) -> None:
        given = self._open(message, body)
        if self._is_value_only:
            result = self._function(given.value)
        elif self.handler.once is None:
            result = self._pass(given)
        else:
            result = self.handler.once.apply(self.handler, given, self._pass)
        if result is not None:
            check_handler_result(self._function, result)

    def _pass(self, given: Given) -> Any:
        """Call the function with what its parameters ask for."""
        parameters = self._parameters
        positional = [given[index] for index in parameters.positional]
        named = {name: given[index] for name, index in parameters.named.items()}
        return self._function(*positional, **named)

    def _open(self, message: Message, body: bytes) -> Given:
        """Return what a message gives to a call. Raises Undecodable."""
        headers = Headers()
        if body.startswith(MAGIC):
            message.body, found = unwrap(body)
            headers.update(found)
        decode = self._parameters.decode
        if decode is None:
            return Given(None, message, headers, None)
        try:
            return Given(decode(message.body), message, headers, None)
        except Exception as error:
            raise Undecodable(f"the body is not what {self.handler} takes: {describe(error)}") from error

    # ---- in an event loop

    async def handle_async(self, message: Message) -> None:
        """Do as `handle`, with a coroutine function."""
        if self._pace is not None and not await self._pace.wait_async():
            message.requeue(0, backoff=False)
            return
        body = message.body
        scope = asyncio.timeout(self._limit_s)
        try:
            async with scope:
                await self.call_async(message, body)
        except BaseException as error:
            if scope.expired():
                self.fail(message, body, self._over_limit())
                return
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # by a stop: the consumer returns the message
            self.fail(message, body, error)
            if isinstance(error, ENDINGS):
                raise

    async def call_async(self, message: Message, body: bytes) -> None:
        """Do as `call`, with a coroutine function."""
        if not self._middleware:
            await self._await_function(message, body)
            return
        call = Call(self.handler, [message], partial(self._await_function, message, body))
        for middleware in self._middleware:
            call = Call(self.handler, [message], partial(middleware.around_async, message, call))
        await call()

    async def _await_function(self, message: Message, body: bytes) -> None:
        given = self._open(message, body)
        if self.handler.once is None:
            await self._pass(given)
        else:
            await self.handler.once.apply_async(self.handler, given, self._pass)

    # ---- answers

    def _over_limit(self) -> TimeLimitExceeded:
        self.counts.add("timed_out")
        return TimeLimitExceeded(f"{self.handler} took longer than its time_limit_s, {self._limit_s}")

    def fail(self, message: Message, body: bytes, error: BaseException) -> None:
        """Decide what becomes of a message whose call raised this error, and do it."""
        self.answer(message, body, decide(error, message.attempts, self.handler.retry, self._chance))

    def answer(self, message: Message, body: bytes, outcome: Outcome) -> None:
        """Requeue, bury or finish a message, unless the handler has answered or detached it."""
        if outcome.error is not None:
            self._log_error(message, outcome.error)
        if message.is_answered or message.is_detached:
            return
        if isinstance(outcome, RequeueAfter):
            self._requeue(message, outcome)
        elif isinstance(outcome, DeadLetter):
            self._bury(message, body, outcome.error)
        elif isinstance(outcome, Dropped):
            self.counts.add("dropped")
            self._log.info("%s dropped %s: %s", self.handler, message, outcome.reason)
            message.finish()

    def _log_error(self, message: Message, error: BaseException) -> None:
        write = self._log.error if isinstance(error, _WITHOUT_TRACE) else self._log.exception
        write("%s failed on %s, attempt %d: %s", self.handler, message, message.attempts, describe(error))

    def _requeue(self, message: Message, outcome: RequeueAfter) -> None:
        if outcome.error is not None:
            self.counts.add("retried")
        message.requeue(min(outcome.delay_s, self._longest_defer_s), backoff=False)

    def _bury(self, message: Message, body: bytes, error: BaseException) -> None:
        """Publish a dead letter. The message is finished once that is stored, and comes again if it is not."""
        topic, letter = dead_letter(self.handler, message, body, error, self._clock_ns())
        if topic == message.topic:
            self._log.error("%s is kept: %s has no dead letters of its own", message, topic)
            message.requeue(self.handler.retry.most_s, backoff=False)
            return
        message.detach()
        try:
            self._store.publish_soon(topic, letter, partial(self._buried, message, topic))
        except Exception as refused:  # noqa: BLE001 - whatever it is, the message comes again
            self._buried(message, topic, refused)

    def _buried(self, message: Message, topic: str, error: Exception | None) -> None:
        if error is not None:
            self._log.error(
                "no dead letter of %s was stored in %s, it comes again: %s", message, topic, error
            )
            retry = self.handler.retry
            message.requeue(retry.delay_s(message.attempts, self._chance()), backoff=False)
            return
        self.counts.add("dead")
        self._log.error("%s is a dead letter now, in %s", message, topic)
        message.finish()
