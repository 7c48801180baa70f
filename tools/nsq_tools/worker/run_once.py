"""nsq-worker run-once: one call of a handler, with standard input as the body of its message, and without a server."""

from __future__ import annotations

import logging
import sys
import traceback
from dataclasses import replace
from functools import wraps
from typing import Any

from nsq_tools.worker.apps import load_app
from nsqd_py.runtime.command import complain
from nsqd_py.settings.program import DONE, FAILED, ToolError
from nsqd_py.work.app import App
from nsqd_py.work.calling import WITHOUT_TRACE
from nsqd_py.work.dead_letters import describe
from nsqd_py.work.handlers import Handler
from nsqd_py.work.outcomes import Dropped, RequeueAfter
from nsqd_py.work.testing import run


def run_once(path: str, name: str) -> int:
    """Call the handler. Its result, or its error and what a worker would do, goes to standard error. Raises ToolError."""
    app = load_app(path)
    handler = _handler_named(app, name)
    results: list[Any] = []
    logging.getLogger("nsqd_py.work").disabled = True  # it says what would become of the message
    try:
        outcome = run(_returning_to(handler, results), sys.stdin.buffer.read(), middleware=app.middleware)
    except SystemExit as error:
        complain(
            f"nsq-worker: {handler.name} failed: {describe(error)}; a worker would handle the message as after another "
            "error, and then end, with all its processes: raise an Exception instead"
        )
        return FAILED
    finally:
        app.close()
    if isinstance(outcome, Dropped):
        complain(f"{handler.name} dropped the message: {outcome.reason}")
        return DONE
    then = "make a dead letter of it"
    if isinstance(outcome, RequeueAfter):
        then = f"call it again after {outcome.delay_s:g} s"
    if outcome.error is not None:
        if not isinstance(outcome.error, WITHOUT_TRACE):
            traceback.print_exception(outcome.error)
        complain(f"nsq-worker: {handler.name} failed: {describe(outcome.error)}; a worker would {then}")
        return FAILED
    if isinstance(outcome, RequeueAfter):
        complain(f"nsq-worker: {handler.name} did not finish the message; a worker would {then}")
        return FAILED
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
