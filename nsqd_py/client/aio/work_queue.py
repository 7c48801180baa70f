"""A queue of work for the tasks of one event loop, with few wake-ups."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from time import monotonic
from typing import Generic, TypeVar

Item = TypeVar("Item")

_SLICE_S = 0.01  # how often a task that never waits lets others run


class WorkQueue(Generic[Item]):
    """Items for idle tasks. `take` waits for one. Many items wake one task, which wakes the next if there is more."""

    __slots__ = ("_idle", "_is_closed", "_items", "_rest_s")

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._is_closed = False
        self._rest_s = 0.0

    def put_all(self, items: Iterable[Item]) -> None:
        self._items.extend(items)
        self._wake_one()

    def clear(self) -> list[Item]:
        """Remove and return the items that no task has taken. Any thread may call this."""
        items = []
        while self._items:
            items.append(self._items.popleft())
        return items

    def close(self) -> None:
        """Close the queue: `take` returns None once it is empty."""
        self._is_closed = True
        while self._idle:
            self._wake_one()

    async def take(self, timeout_s: float | None = None) -> Item | None:
        """Return the next item; None after the time-out, or once the queue is closed and empty."""
        if monotonic() > self._rest_s:
            await asyncio.sleep(0)
            self._rest_s = monotonic() + _SLICE_S
        try:
            async with asyncio.timeout(timeout_s):
                while not self._items and not self._is_closed:
                    await self._wait()
        except TimeoutError:
            return None
        return self._items.popleft() if self._items else None

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._idle:
                self._idle.remove(waiter)
            elif self._items:
                self._wake_one()
            raise
        self._rest_s = monotonic() + _SLICE_S
        if len(self._items) > 1:
            self._wake_one()

    def _wake_one(self) -> None:
        if self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
