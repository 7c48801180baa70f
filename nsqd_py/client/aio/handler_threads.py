"""Threads that run plain functions for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

from nsqd_py.client.blocking.backend import THREADS, WorkQueue


class _Outcome(NamedTuple):
    result: Any = None
    error: BaseException | None = None


class HandlerThreads:
    """At most `count` threads, which are started at the first call. One that hangs does not keep the process alive.

    Each call has the context variables of its caller.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._started = 0
        self._calls: WorkQueue[Callable[[], None]] = WorkQueue(THREADS)

    async def run(self, function: Callable[[Any], object], argument: object) -> Any:
        """Return or raise what the function does. If this is cancelled, the function goes on, and its result is dropped.

        Raises RuntimeError if the system has no thread for it; the next call tries again.
        """
        while self._started < self._count:
            THREADS.spawn(f"nsqd-py handler {self._started}", _work, self._calls)
            self._started += 1
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Outcome] = loop.create_future()
        call = partial(copy_context().run, _run, function, argument)
        self._calls.put_all([partial(_report, call, loop, future)])
        outcome = await future
        if outcome.error is not None:
            raise outcome.error
        return outcome.result

    def close(self) -> None:
        """End the threads when they have done what they are doing. Any thread may call this."""
        self._calls.close()


def _work(calls: WorkQueue[Callable[[], None]]) -> None:
    while (call := calls.take()) is not None:
        call()


def _run(function: Callable[[Any], object], argument: object) -> _Outcome:
    """Return the error as a value: a future takes no StopIteration."""
    try:
        return _Outcome(result=function(argument))
    except BaseException as error:  # noqa: BLE001 - raised in the task that waits
        return _Outcome(error=error)


def _report(
    call: Callable[[], _Outcome], loop: asyncio.AbstractEventLoop, future: asyncio.Future[_Outcome]
) -> None:
    outcome = call()
    with suppress(RuntimeError):  # the loop is closed: the message is redelivered
        loop.call_soon_threadsafe(_set, future, outcome)


def _set(future: asyncio.Future[_Outcome], outcome: _Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
