"""Declared schedules, and the handler of their jobs: the messages that stand for one occurrence that is due."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from nsqd_py.client.callables import is_coroutine_function, name_of
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.message import Requeue
from nsqd_py.protocol.names import MAX_NAME_LENGTH, is_valid_name
from nsqd_py.work.handlers import Handler, Headers
from nsqd_py.work.outcomes import Drop, Retry
from nsqd_py.work.timed.occurrences import BadSchedule, Occurrences
from nsqd_py.work.timed.scheduler import DUE_HEADER, SCHEDULE_HEADER, due_topic, schedules_topic
from nsqd_py.work.timed.tokens import FOREIGN_S

_CONCURRENCY = 8
_FOREIGN_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """One declared schedule."""

    name: str
    function: Callable[[], Any]
    occurrences: Occurrences


class Jobs:
    """Calls the functions of schedules for the messages of the topic `<app>.due`."""

    def __init__(self, schedules: dict[str, Schedule], clock: Callable[[], float] = time.time) -> None:
        self._schedules = schedules
        self._clock = clock

    def handler(self, app_name: str, longest_defer_s: float) -> Handler:
        """Return the handler of all jobs: a coroutine function if a schedule is one."""
        is_async = has_coroutine_function(self._schedules.values())
        return Handler(
            function=self.run_async if is_async else self.run,
            topic=due_topic(app_name),
            channel=app_name,
            concurrency=_CONCURRENCY,
            retry=Retry().within(longest_defer_s),
            longest_defer_s=longest_defer_s,
            spare_attempts=math.ceil(FOREIGN_S / _FOREIGN_WAIT_S),
        )

    def run(self, headers: Headers) -> None:
        """Call the function of one job. Raises what it raises, Requeue and Drop as `_function`."""
        self._function(headers)()

    async def run_async(self, headers: Headers) -> None:
        """Do as `run`; plain functions are called in a thread."""
        function = self._function(headers)
        if is_coroutine_function(function):
            await function()
        else:
            await asyncio.to_thread(function)

    def _function(self, headers: Headers) -> Callable[[], Any]:
        """Raises Requeue if another version of the program has this schedule, and Drop if that was too long ago."""
        name = headers.get(SCHEDULE_HEADER, "")
        schedule = self._schedules.get(name)
        if schedule is not None:
            return schedule.function
        late_s = self._clock() - float(headers.get(DUE_HEADER, "0"))
        if late_s > FOREIGN_S:
            raise Drop(f"no process has had the schedule {name!r} for {late_s:.0f} s")
        raise Requeue(_FOREIGN_WAIT_S, backoff=False)


def has_coroutine_function(schedules: Iterable[Schedule]) -> bool:
    """True if one of them is a coroutine function: then all are called in the event loop."""
    return any(is_coroutine_function(each.function) for each in schedules)


def checked_name(app_name: str) -> str:
    """Return the name of an app. Raises BadClientOption if it makes no topics."""
    longest = schedules_topic(app_name)
    if not is_valid_name(longest.encode("utf-8", "surrogateescape")):
        raise BadClientOption(
            f"App name {app_name!r} makes no topic such as {longest}: give it at most "
            f"{MAX_NAME_LENGTH - len(schedules_topic(''))} of the characters a-z A-Z 0-9 . _ -"
        )
    return app_name


def schedule_name(function: Callable[..., Any]) -> str:
    """Return the module and qualified name of a function. Raises BadSchedule if it cannot be scheduled."""
    name = f"{getattr(function, '__module__', '')}.{name_of(function)}"
    if not (name.isascii() and name.isprintable()):
        raise BadSchedule(
            f"the name of a schedule is in a header, which is ASCII: rename the function {name}"
        )
    signature = inspect.signature(function)
    try:
        signature.bind()
    except TypeError:
        raise BadSchedule(
            f"schedule {name}: it is called without arguments, and needs {signature}: give them defaults, or "
            "declare a function that calls it"
        ) from None
    return name
