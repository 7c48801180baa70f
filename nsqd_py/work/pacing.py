"""When calls may begin, and when they are over their limit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from threading import Condition, Event, Lock
from time import monotonic

from nsqd_py.client.blocking.backend import THREADS

_LONGEST_WAIT_S = 60.0


class Pace:
    """Lets calls begin at most `rate` times a second, evenly."""

    def __init__(self, rate: float, clock: Callable[[], float] = monotonic) -> None:
        self._interval_s = 1 / rate
        self._clock = clock
        self._next_s = -math.inf
        self._changed = Condition()
        self._has_ended = Event()

    def reserve(self) -> float:
        """Return how long to wait for the next free moment, which is taken."""
        with self._changed:
            now_s = self._clock()
            begins_s = max(now_s, self._next_s)
            self._next_s = begins_s + self._interval_s
            return begins_s - now_s

    def wait(self) -> bool:
        """Wait until a call may begin. Return False if there is an end before."""
        wait_s = self.reserve()
        if wait_s:
            return not self._has_ended.wait(wait_s)
        return not self._has_ended.is_set()

    async def wait_async(self) -> bool:
        """Do as `wait`, in an event loop."""
        wait_s = self.reserve()
        ends_s = self._clock() + wait_s
        while not self._has_ended.is_set():
            left_s = ends_s - self._clock()
            if left_s <= 0:
                return True
            await asyncio.sleep(min(left_s, 0.2))
        return False

    def end(self) -> None:
        """Let no call begin any more."""
        self._has_ended.set()


class Limited:
    """A call that has a limit. `owner` is whose place it takes."""

    __slots__ = ("deadline_s", "on_over", "owner")

    def __init__(self, deadline_s: float, on_over: Callable[[], None], owner: object) -> None:
        self.deadline_s = deadline_s
        self.on_over = on_over
        self.owner = owner


class TimeLimits:
    """Calls that run in threads, and what to do when they are over their limit. A thread cannot be ended.

    `end` and `expire` remove a call: the one that does so answers its message.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._running: dict[Limited, None] = {}
        self._late: dict[Limited, None] = {}  # over their limit, and not at their end
        self._changed = Condition()
        self._answering = (
            Lock()
        )  # held from the removal of calls over their limit until their messages are answered
        self._wakes_s = -math.inf  # when the thread looks next
        self._is_closed = False

    def begin(self, limit_s: float, on_over: Callable[[], None], owner: object = None) -> Limited:
        """Call `on_over` after `limit_s`, unless `end` comes before."""
        call = Limited(self._clock() + limit_s, on_over, owner)
        with self._changed:
            self._running[call] = None
            if call.deadline_s < self._wakes_s:
                self._changed.notify()
        return call

    def end(self, call: Limited) -> bool:
        """Return False if the call is over its limit: then its message is answered, before this returns."""
        with self._changed:
            is_in_time = self._running.pop(call, self) is None
            self._late.pop(call, None)
        if not is_in_time:
            with self._answering:
                pass
        return is_in_time

    def expire(self, now_s: float) -> int:
        """Answer the messages of calls that are over their limit. Return how many calls these are."""
        with self._answering:
            with self._changed:
                over = [call for call in self._running if call.deadline_s <= now_s]
                for call in over:
                    del self._running[call]
                    self._late[call] = None
            for call in over:
                call.on_over()
        return len(over)

    def count_late(self, owner: object) -> int:
        """Return how many calls of this owner are over their limit and have not ended."""
        with self._changed:
            return sum(1 for call in self._late if call.owner is owner)

    def start(self) -> None:
        """Start the thread that looks for calls over their limit."""
        THREADS.spawn("nsqd-py time limits", self._watch)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _watch(self) -> None:
        while not self._is_closed:
            self.expire(self._clock())
            with self._changed:
                deadlines_s = (call.deadline_s for call in self._running)
                self._wakes_s = min(deadlines_s, default=math.inf)
                if not self._is_closed:
                    left_s = max(0.0, self._wakes_s - self._clock())
                    self._changed.wait(min(_LONGEST_WAIT_S, left_s))
