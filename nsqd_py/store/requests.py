"""Counts the requests to a store: they are most of what a bucket costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock

from nsqd_py.objects.calls import Listed, Objects, Version
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


class CountedObjects(Objects):
    """The objects of a store; each call counts as a request."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.requests = Requests()

    def __repr__(self) -> str:
        return repr(self._objects)

    def create(self, name: str, data: bytes) -> Version:
        self.requests.add()
        return self._objects.create(name, data)

    def get(self, name: str) -> tuple[bytes, Version]:
        self.requests.add()
        return self._objects.get(name)

    def get_range(self, name: str, start: int, end: int) -> bytes:
        self.requests.add()
        return self._objects.get_range(name, start, end)

    def swap(self, name: str, data: bytes, version: Version) -> Version:
        self.requests.add()
        return self._objects.swap(name, data, version)

    def put_file(self, name: str, path: Path, size_bytes: int) -> None:
        self.requests.add()
        self._objects.put_file(name, path, size_bytes)

    def delete(self, names: Iterable[str]) -> None:
        self.requests.add()
        self._objects.delete(names)

    def list(self, prefix: str) -> Iterator[Listed]:
        self.requests.add()
        return self._objects.list(prefix)
