"""Counts the requests to a store: they are most of what a bucket costs."""

from __future__ import annotations

from threading import Lock
from typing import Any, cast

from nsqd_py.objects.calls import Objects
from nsqd_py.settings.durations import HOUR_NS

_DAY_NS = 24 * HOUR_NS


class Requests:
    """The number of requests of this day in UTC. Threads may add to it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._day = 0
        self._count = 0
        self._counted = 0  # when the day was looked at last

    def add(self) -> None:
        """Count a request."""
        with self._lock:
            self._count += 1

    def today(self, now_ns: int) -> int:
        """Return the number of requests since midnight, or since the first call on this day."""
        day = now_ns // _DAY_NS
        with self._lock:
            if day != self._day:
                if self._day:
                    self._counted = self._count
                self._day = day
            return self._count - self._counted


def counted(objects: Objects, requests: Requests) -> Objects:
    """Return the objects of a store; each call counts as a request."""
    return cast(Objects, _Counted(objects, requests))


class _Counted:
    """All calls are passed on: whoever asks for one makes it."""

    def __init__(self, objects: Objects, requests: Requests) -> None:
        self._objects = objects
        self._requests = requests

    def __repr__(self) -> str:
        return repr(self._objects)

    def __getattr__(self, name: str) -> Any:
        self._requests.add()
        return getattr(self._objects, name)
