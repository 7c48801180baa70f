"""The calls of one handler: their rate, their time limit, middleware, decoding, and the answers to their messages."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, NoReturn

from nsqd_py.client.callables import check_handler_result
from nsqd_py.client.consuming.base import ENDINGS
from nsqd_py.client.message import AlreadyAnswered, Message
from nsqd_py.protocol.envelope import MAGIC, unwrap
from nsqd_py.runtime.logs.lines import LineWriter
from nsqd_py.work.dead_letters import Store, dead_letter, describe, is_too_large
from nsqd_py.work.handlers import Given, Handler, Headers
from nsqd_py.work.middleware import UNRAISED, Call, Middleware
from nsqd_py.work.once import Once
from nsqd_py.work.outcomes import (
    UNANSWERED_ATTEMPTS,
    BatchFailed,
    DeadLetter,
    Dropped,
    Outcome,
    RequeueAfter,
    RequeueRefused,
    TimeLimitExceeded,
    Unanswered,
    Undecodable,
    decide,
    request_in,
)
from nsqd_py.work.pacing import Pace, TimeLimits

WITHOUT_TRACE = (
    Undecodable,
    TimeLimitExceeded,
    RequeueRefused,
    Unanswered,
)  # the stack says nothing about them
_MOST_UNSTORED = 1000
_TIMED_OUT = (
    "%s ended too late: nsqd has timed %s out, and delivers it again. Raise nsqd's --max-msg-timeout, or let "
    "time_limit_s end the call before it"
)
_DISCONNECTED = "%s ended too late: the connection of %s was lost during the call, and nsqd delivers it again"


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
    """The calls of one handler in one process. A call is for one message, or for those of a batch.

    store         publishes dead letters
    pace, limits  the rate of the calls, if they have one; what watches the time limits of those in threads
    """

    def __init__(
        self,
        handler: Handler,
        *,
        store: Store,
        log: LineWriter,
        limits: TimeLimits,
        pace: Pace | None = None,
        middleware: Sequence[Middleware] = (),
        chance: Callable[[], float] = random.random,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.handler = handler
        self.counts = Counts()
        self._store = store
        self._log = log
        self._limits = limits
        self._pace = pace
        self._middleware = tuple(reversed(middleware))
        self._chance = chance
        self._clock_ns = clock_ns
        self._running: dict[int, list[Message]] = {}
        self._is_stopping = False
        self._returns_all = False
        self._unstored: dict[bytes, BaseException] = {}  # errors of dead letters that were not stored, by id

    # ---- before a call

    def _to_call(self, messages: list[Message]) -> list[Message]:
        """Return the messages that the handler is called with. Those that came too often become dead letters.

        nsqd delivers again what is not live any more, and perhaps over the same connection: it is not answered here.
        """
        for message in messages:
            if not message.is_live:
                message.detach()
        return [message for message in messages if message.is_live and not self._is_given_up(message)]

    def _is_given_up(self, message: Message) -> bool:
        most = self.handler.most_attempts
        if most is None or message.attempts <= most:
            return False
        error = self._unstored.pop(message.id, None)
        if error is None and message.attempts <= most + UNANSWERED_ATTEMPTS:
            return False  # a stop or a lost connection may have given it back before a call
        error = error or Unanswered(message.attempts, most)
        self._log.error("%s gives up %s without a call: %s", self.handler, message, describe(error))
        if isinstance(error, Unanswered):  # another one was raised at its attempt
            self._report_unraised([message], error)
        self.answer(message, message.body, DeadLetter(error))
        return True

    def _report_unraised(self, messages: list[Message], error: BaseException) -> None:
        """Let the middleware know of an error that no call raises to it."""
        call = Call(self.handler, messages, partial(_raise, error))
        for middleware in self._middleware:
            report = getattr(middleware, UNRAISED, None)
            if report is None:
                continue
            try:
                report(error, call)
            except Exception as failure:  # noqa: BLE001 - the message is answered all the same
                name = type(middleware).__name__
                self._log.exception("the middleware %s has failed: %s", name, describe(failure))

    # ---- in a thread

    def handle(self, message: Message) -> None:
        """Call the handler, and answer the message unless that succeeds: then the consumer finishes it.

        Raises SystemExit and KeyboardInterrupt of the handler, after the answer.
        """
        self.handle_all([message])

    def handle_all(self, messages: list[Message]) -> None:
        """Do as `handle`, with the messages of one call."""
        may_begin = self._pace is None or self._pace.wait()
        if self._returns_all or not may_begin:
            return_messages(messages)
            return
        messages = self._to_call(messages)
        if not messages:
            return
        bodies = [message.body for message in messages]
        limit_s = self.handler.time_limit_s
        limited = None
        if limit_s is not None:
            limited = self._limits.begin(limit_s, lambda: self._fail_late(messages, bodies), self)
        self._running[id(messages)] = messages
        try:
            self.call(messages, bodies)
        except BaseException as error:
            if limited is None or self._limits.end(limited):
                self.fail(messages, bodies, error)
            else:
                self._log.warning(
                    "%s raised after its time limit, for %s: %r", self.handler, messages[0], error
                )
            if isinstance(error, ENDINGS):
                raise
        else:
            if limited is not None and not self._limits.end(limited):
                self._log.warning("%s returned after its time limit, for %s", self.handler, messages[0])
        finally:
            del self._running[id(messages)]
            self._warn_of_late(messages)

    def begin_to_stop(self) -> None:
        """From now on, a cancellation of a coroutine is taken for one by the stop. Any thread may call this."""
        self._is_stopping = True

    @property
    def late_count(self) -> int:
        """How many calls in threads are over their time limit and have not returned: each takes a place."""
        return self._limits.count_late(self)

    @property
    def has_only_late(self) -> bool:
        """True if no other calls run than such: their messages are answered, and their results are ignored."""
        return len(self._running) <= self.late_count

    def return_all(self) -> None:
        """Let the server deliver the messages of running calls again, and begin no more calls. Any thread may call this."""
        self._returns_all = True
        for messages in list(self._running.values()):
            return_messages(messages)

    def call(self, messages: list[Message], bodies: list[bytes]) -> None:
        """Call the function within the middleware. `bodies` are those that came.

        Raises what the function raises, Undecodable, and BatchFailed if that is so for some messages of a batch.
        """
        if not self._middleware:
            self._call_function(messages, bodies)
            return
        call = Call(self.handler, messages, partial(self._call_function, messages, bodies))
        for middleware in self._middleware:
            call = Call(self.handler, messages, partial(middleware.around, messages[0], call))
        call()

    def _call_function(self, messages: list[Message], bodies: list[bytes]) -> None:
        handler = self.handler
        given, undecodable = self._open(messages, bodies)
        try:
            if handler.once is None:
                result = self._pass(given)
            else:
                result = self._apply(handler.once, given)
        except Exception as error:
            raise_merged(undecodable, len(messages), error)
            raise
        if undecodable:
            raise BatchFailed(undecodable)
        if result is not None:
            check_handler_result(handler.function, result)

    # ---- in an event loop

    async def handle_async(self, message: Message) -> None:
        """Do as `handle`, with a coroutine function."""
        await self.handle_all_async([message])

    async def handle_all_async(self, messages: list[Message]) -> None:
        """Do as `handle_all`, with a coroutine function."""
        may_begin = self._pace is None or await self._pace.wait_async()
        if self._returns_all or not may_begin:
            return_messages(messages)
            return
        messages = self._to_call(messages)
        if not messages:
            return
        bodies = [message.body for message in messages]
        self._running[id(messages)] = messages
        try:
            await self.call_async(messages, bodies)
            if self._is_cancelled_by_handler():
                await asyncio.sleep(0)  # raises it, if the handler has not seen it
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self._is_stopping:
                raise  # the consumer returns the message
            self.fail(messages, bodies, error)
            if isinstance(error, ENDINGS):
                raise
        finally:
            del self._running[id(messages)]
            self._warn_of_late(messages)
            if self._is_cancelled_by_handler():
                await go_on()

    def _is_cancelled_by_handler(self) -> bool:
        """True if the task of this call was cancelled, and not by a stop."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0 and not self._is_stopping

    async def call_async(self, messages: list[Message], bodies: list[bytes]) -> None:
        """Do as `call`, with a coroutine function."""
        if not self._middleware:
            await self._await_function(messages, bodies)
            return
        call = Call(self.handler, messages, partial(self._await_function, messages, bodies))
        for middleware in self._middleware:
            call = Call(self.handler, messages, partial(middleware.around_async, messages[0], call))
        await call()

    async def _await_function(self, messages: list[Message], bodies: list[bytes]) -> None:
        given, undecodable = self._open(messages, bodies)
        try:
            if self.handler.time_limit_s is None:
                await self._pass(given)
            else:
                await self._await_within_limit(given)
        except Exception as error:
            raise_merged(undecodable, len(messages), error)
            raise
        if undecodable:
            raise BatchFailed(undecodable)

    async def _await_within_limit(self, given: Given) -> None:
        scope = asyncio.timeout(self.handler.time_limit_s)
        try:
            async with scope:
                await self._pass(given)
        except TimeoutError:
            if scope.expired():
                raise self._over_limit() from None
            raise

    # ---- what a call passes

    def _pass(self, given: Given) -> Any:
        """Call the function with what its parameters ask for."""
        values = {name: given[role] for name, role in self.handler.roles.items()}
        return self.handler.function(**values)

    def _apply(self, once: Once, given: Given) -> Any:
        """Do as `_pass`, in a transaction with the id of the message. A dead letter has that of its first message."""
        message_id = given.headers.get("id", given.message.id.decode("latin-1"))
        return once.apply(
            f"{self.handler.topic}/{self.handler.channel}",
            message_id,
            given.value,
            lambda connection: self._pass(given._replace(connection=connection)),
        )

    def _open(self, messages: list[Message], bodies: list[bytes]) -> tuple[Given, dict[int, BaseException]]:
        """Return what a call passes, and the errors of messages of a batch that cannot be decoded. Raises Undecodable."""
        if self.handler.batch is None:
            return self._open_one(messages[0], bodies[0]), {}
        opened: list[Given] = []
        errors: dict[int, BaseException] = {}
        for index, message in enumerate(messages):
            try:
                opened.append(self._open_one(message, bodies[index]))
            except Undecodable as error:
                errors[index] = error
        if not opened:
            raise BatchFailed(errors)
        values = [given.value for given in opened]
        return Given(values, [given.message for given in opened], [given.headers for given in opened]), errors

    def _open_one(self, message: Message, body: bytes) -> Given:
        headers = Headers()
        if body.startswith(MAGIC):
            message.body, found = unwrap(body)
            headers.update(found)
        decode = self.handler.decode
        if decode is None:
            return Given(None, message, headers)
        try:
            return Given(decode(message.body), message, headers)
        except Exception as error:
            raise Undecodable(f"the body is not what {self.handler} takes: {describe(error)}") from error

    # ---- answers

    def _over_limit(self) -> TimeLimitExceeded:
        self.counts.add("timed_out")
        return TimeLimitExceeded(
            f"{self.handler} took longer than its time_limit_s, {self.handler.time_limit_s}"
        )

    def _fail_late(self, messages: list[Message], bodies: list[bytes]) -> None:
        """Do as `fail`, for a call in a thread that is over its time limit and goes on."""
        error = self._over_limit()
        self._report_unraised(messages, error)
        self.fail(messages, bodies, error)

    def fail(self, messages: list[Message], bodies: list[bytes], error: BaseException) -> None:
        """Decide what becomes of the messages of a call that raised this error, and do it."""
        if isinstance(error, BatchFailed):
            errors: dict[int, BaseException] = error.errors
        else:
            errors = dict.fromkeys(range(len(messages)), error)
        logged: BaseException | None = None
        for index, each in errors.items():
            message = messages[index]
            outcome = decide(
                each,
                message.attempts,
                self.handler.retry,
                self._chance,
                most_attempts=self.handler.most_attempts,
                longest_defer_s=self.handler.longest_defer_s,
            )
            if outcome.error is not None:
                self._log_error(message, outcome.error, has_trace=each is not logged)
                logged = each
                if outcome.error is not each:
                    self._report_unraised([message], outcome.error)
            self.answer(message, bodies[index], outcome)

    def _warn_of_late(self, messages: list[Message]) -> None:
        """Log which messages nsqd delivers again, although their call has ended now."""
        for message in messages:
            if not (message.is_live or message.is_answered or message.is_detached):
                is_connected = getattr(message.batch.connection, "is_open", False)
                self._log.warning(_TIMED_OUT if is_connected else _DISCONNECTED, self.handler, message)

    def _log_error(self, message: Message, error: BaseException, *, has_trace: bool) -> None:
        if has_trace and not isinstance(error, WITHOUT_TRACE):
            write = self._log.exception
        else:
            write = self._log.error
        write("%s failed on %s, attempt %d: %s", self.handler, message, message.attempts, describe(error))

    def answer(self, message: Message, body: bytes, outcome: Outcome) -> None:
        """Requeue, bury or finish a message, unless the handler has answered or detached it, or nsqd delivers it again."""
        if message.is_answered or message.is_detached:
            return
        if not message.is_live:
            if isinstance(outcome, DeadLetter):
                self._remember(message, outcome.error)
            return
        if isinstance(outcome, RequeueAfter):
            if outcome.error is not None:
                self.counts.add("retried")
            message.requeue(min(outcome.delay_s, self.handler.longest_defer_s), backoff=False)
        elif isinstance(outcome, DeadLetter):
            self._bury(message, body, outcome.error)
        elif isinstance(outcome, Dropped):
            self.counts.add("dropped")
            self._log.info("%s dropped %s: %s", self.handler, message, outcome.reason)
            message.finish()

    def _bury(self, message: Message, body: bytes, error: BaseException) -> None:
        """Publish a dead letter. The message is finished once that is stored, and comes again if it is not."""
        topic, letters = dead_letter(self.handler, message, body, error, self._clock_ns())
        if topic == message.topic:
            self._log.error("%s comes again: %s is a topic of dead letters, and has none", message, topic)
            message.requeue(self.handler.retry.most_s, backoff=False)
            return
        message.detach()
        self._publish(message, topic, letters, error)

    def _publish(self, message: Message, topic: str, letters: list[bytes], died_of: BaseException) -> None:
        """Publish the first of the dead letters, and the next one if nsqd finds that too large."""
        on_done = partial(self._buried, message, topic, letters[1:], died_of)
        try:
            self._store.publish_soon(topic, letters[0], on_done)
        except Exception as refused:  # noqa: BLE001 - whatever it is, the message comes again
            on_done(refused)

    def _buried(
        self,
        message: Message,
        topic: str,
        shorter: list[bytes],
        died_of: BaseException,
        refused: Exception | None,
    ) -> None:
        if refused is None:
            self.counts.add("dead")
            self._log.error("%s is a dead letter now, in %s", message, topic)
            message.finish()
            return
        if shorter and is_too_large(refused):
            self._log.warning(
                "the dead letter of %s is too large, and gets shorter headers. To keep them, raise nsqd's --max-msg-size: %s",
                message,
                refused,
            )
            self._publish(message, topic, shorter, died_of)
            return
        self._log.error("%s comes again: no dead letter was stored in %s: %s", message, topic, refused)
        self._remember(message, died_of)
        delay_s = self.handler.retry.delay_s(message.attempts, self._chance())
        message.requeue(delay_s, backoff=False)

    def _remember(self, message: Message, error: BaseException) -> None:
        """Keep the error of a message that comes again instead of becoming a dead letter."""
        if len(self._unstored) < _MOST_UNSTORED:
            self._unstored[message.id] = error


def _raise(error: BaseException) -> NoReturn:
    raise error


async def go_on() -> None:
    """Let the task go on that a handler has cancelled."""
    task = asyncio.current_task()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # raises a cancellation that was not raised yet
    while task is not None and task.cancelling():
        task.uncancel()


def return_messages(messages: list[Message]) -> None:
    """Let the server deliver messages again at once, unless they are answered or detached."""
    for message in messages:
        with suppress(AlreadyAnswered):  # another thread may answer it
            if not message.is_detached:
                message.requeue(0, backoff=False)


def raise_merged(undecodable: dict[int, BaseException], count: int, raised: Exception) -> None:
    """Raise BatchFailed with the errors of a batch of `count` messages by their indexes, if they differ.

    A BatchFailed of a handler has indexes of the values that it got: those of messages that could be decoded. A request
    in a group, as a TaskGroup raises it, is raised by itself.
    """
    error = request_in(raised)
    if not undecodable and not isinstance(error, BatchFailed):
        if error is not raised:
            raise error from raised
        return
    indexes = [index for index in range(count) if index not in undecodable]
    if isinstance(error, BatchFailed):
        errors = {indexes[index]: request_in(each) for index, each in error.errors.items()}
    else:
        errors = dict.fromkeys(indexes, error)
    raise BatchFailed({**undecodable, **errors}) from raised
