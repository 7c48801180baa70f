"""nsq-worker run-once: one call of a handler, with standard input as the body of its message."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Collection
from dataclasses import replace
from functools import wraps
from typing import Any

from nsq_tools.worker.apps import load_app
from nsqd_py.client.message import Message
from nsqd_py.client.options import Delay
from nsqd_py.runtime.command import complain
from nsqd_py.settings.program import DONE, FAILED, ToolError
from nsqd_py.work.app import App
from nsqd_py.work.calling import Calls
from nsqd_py.work.dead_letters import describe
from nsqd_py.work.handlers import Handler
from nsqd_py.work.outcomes import Dropped, RequeueAfter, Undecodable, decide
from nsqd_py.work.pacing import TimeLimits

_ID = b"0" * 16
_MIDDLE = 0.5  # of the jitter of a retry


def run_once(path: str, name: str) -> int:
    """Call the handler. The result, or the error and what a worker would do, goes to standard error. Raises ToolError."""
    app = load_app(path)
    handler = _handler_named(app, name)
    results: list[Any] = []
    calls = _ShellCalls(_returning_to(handler, results), app)
    delivery: Any = _Delivery(handler)
    body = sys.stdin.buffer.read()
    message = Message(_ID, body, time.time_ns(), 1, delivery)
    calls.limits.start()
    try:
        if handler.is_async:
            asyncio.run(calls.handle_all_async([message]))
        else:
            calls.handle_all([message])
    except SystemExit:
        pass  # `calls.error` has it
    finally:
        calls.limits.close()
        app.close()
    if calls.error is not None:
        return _report_error(handler, calls.error)
    if results and results[0] is not None:
        complain(f"{handler.name} returned {results[0]!r}")
    return DONE


def _handler_named(app: App, name: str) -> Handler:
    """Return the handler whose name, function or topic/channel this is. Raises ToolError."""
    found = [
        handler
        for handler in app.handlers
        if f".{handler.name}".endswith(f".{name}") or f"{handler.topic}/{handler.channel}" == name
    ]
    if len({handler.function for handler in found}) == 1:
        return found[0]
    known = ", ".join(handler.name for handler in found or app.handlers)
    reason = "is the name of several handlers" if found else "is no handler of the app"
    raise ToolError(f"{name} {reason}; choose one of {known}")


def _returning_to(handler: Handler, results: list[Any]) -> Handler:
    """Return a handler whose results are put into the list."""
    function = handler.function

    @wraps(function)  # the handler reads its parameters
    def call(**given: Any) -> None:
        results.append(function(**given))

    @wraps(function)
    async def call_async(**given: Any) -> None:
        results.append(await function(**given))

    return replace(handler, function=call_async if handler.is_async else call)


class _ShellCalls(Calls):
    """Calls that remember the error of the handler, and do nothing with its message."""

    def __init__(self, handler: Handler, app: App) -> None:
        self.limits = TimeLimits()
        super().__init__(
            handler, store=_NoStore(), log=app.log, limits=self.limits, middleware=app.middleware
        )
        self.error: BaseException | None = None

    def fail(self, messages: list[Message], bodies: list[bytes], error: BaseException) -> None:
        self.error = error


class _NoStore:
    """The place of what stores dead letters, of which there are none."""

    def publish_soon(self, topic: str, body: bytes, on_done: Any = None, *, defer_s: Any = 0) -> Any:
        raise AssertionError(f"a call in the shell publishes nothing to {topic}")


class _Delivery:
    """The delivery of the message, in the place of a `MessageBatch`: there is no nsqd."""

    nsqd = "the shell"
    is_live = True

    def __init__(self, handler: Handler) -> None:
        self.topic = handler.topic
        self.channel = handler.channel
        self._is_open = True

    def is_open(self, message_id: bytes) -> bool:
        return self._is_open

    def finish_one(self, message_id: bytes) -> None:
        self._is_open = False

    def requeue_one(self, message_id: bytes, attempts: int, delay_s: Delay | None, *, backoff: bool) -> None:
        self._is_open = False
        complain(f"the handler has requeued the message: {delay_s!r}")

    def touch_some(self, ids: Collection[bytes]) -> None:
        """Do nothing: there is no time-out."""


def _report_error(handler: Handler, error: BaseException) -> int:
    """Print the error and what a worker would do. Return the exit status."""
    outcome = decide(error, 1, handler.retry, lambda: _MIDDLE)
    if isinstance(outcome, Dropped):
        complain(f"{handler.name} dropped the message: {outcome.reason}")
        return DONE
    if not isinstance(error, Undecodable) and error.__traceback__ is not None:
        complain("".join(traceback.format_exception(error)).rstrip())
    then = "make a dead letter of it"
    if isinstance(outcome, RequeueAfter):
        then = f"call it again after {outcome.delay_s:g} s"
    complain(f"nsq-worker: {handler.name} failed: {describe(error)}; a worker would {then}")
    return FAILED
