"""Recognizes handlers that calling alone does not run: coroutine functions and generator functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from nsqd_py.client.errors import BadClientOption

_REMEDY = "use nsqd_py.client.aio, or a plain function that calls asyncio.run(...)"
_WAIT = "wait for its result in the handler, or detach the message and finish it later"
# In futures; in the results of multiprocessing, gevent and celery; in a publish on gevent.
_SIGNS_OF_PENDING = ("add_done_callback", "ready", "is_over")
_NO_YIELD = "remove its `yield`"


def is_coroutine_function(call: Any) -> bool:
    """Return True for `async def` functions and methods, their partials, and objects whose `__call__` is one."""
    return _is(inspect.iscoroutinefunction, call)


def refuse_what_does_not_run(role: str, call: Any, *, is_awaited: bool) -> None:
    """Raise BadClientOption for a generator function and, unless the caller awaits results, a coroutine function."""
    if call is None:
        return
    if not callable(call):
        raise BadClientOption(f"{role} must be a function, got {call!r}")
    if _is(inspect.isgeneratorfunction, call) or _is(inspect.isasyncgenfunction, call):
        raise BadClientOption(
            f"{role} {name_of(call)} is a generator function, which does not run: {_NO_YIELD}"
        )
    if not is_awaited and is_coroutine_function(call):
        raise BadClientOption(
            f"{role} {name_of(call)} is a coroutine function, which is not awaited here: {_REMEDY}"
        )


def refuse_without_argument(role: str, call: Any) -> None:
    """Raise BadClientOption unless the function can be called with one argument."""
    if call is None:
        return
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # of a function in C that does not say what it takes
        return
    try:
        signature.bind(None)
    except TypeError as error:
        what = "batch" if role == "batch_handler" else "message"
        raise BadClientOption(f"{role} {name_of(call)} must take one argument, the {what}: {error}") from None


def check_result(call: Any, result: object) -> None:
    """Raise BadClientOption if the result of a call shows that the code of the function has not run."""
    if result is None:
        return
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise BadClientOption(f"{name_of(call)} returned a generator, which does not run: {_NO_YIELD}")
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # otherwise the interpreter warns that it was never awaited
        raise BadClientOption(f"{name_of(call)} returned an awaitable, which is not awaited here: {_REMEDY}")


def check_handler_result(handler: Any, result: object) -> None:
    """Raise BadClientOption as `check_result`, and for a result of work that may still run, such as a future."""
    check_result(handler, result)
    if result is not None and any(hasattr(type(result), name) for name in _SIGNS_OF_PENDING):
        kind = type(result).__name__
        raise BadClientOption(f"{name_of(handler)} returned a {kind}, which is not waited for here: {_WAIT}")


def name_of(call: Any) -> str:
    """Return the name of a function as errors show it."""
    call = _function(call)
    return str(getattr(call, "__qualname__", type(call).__qualname__))


def _function(call: Any) -> Any:
    while isinstance(call, functools.partial):
        call = call.func
    return call


def _is(kind: Callable[[Any], bool], call: Any) -> bool:
    call = _function(call)
    if kind(call):
        return True
    return not inspect.isclass(call) and kind(type(call).__call__)
