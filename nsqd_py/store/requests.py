"""Counts the requests to a store, and those that failed: requests are most of what a bucket costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from nsqd_py.objects.calls import PART_BYTES, Listed, Objects, StoreError, StoreRefused, Version
from nsqd_py.settings.durations import HOUR_NS

_DAY_NS = 24 * HOUR_NS
# Kinds of requests, by their price.
PUT, GET, LIST, DELETE = "put", "get", "list", "delete"


class Requests:
    """The number of requests by kind, and of those of this day in UTC. Threads may add to it.

    errors  requests that the store did not answer, or refused
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = dict.fromkeys((PUT, GET, LIST, DELETE), 0)
        self._day = 0
        self._counted = 0  # when the day was looked at last
        self.errors = 0

    def add(self, kind: str, count: int = 1) -> None:
        """Count requests of a kind."""
        with self._lock:
            self._counts[kind] += count

    def add_error(self) -> None:
        """Count a request that failed."""
        with self._lock:
            self.errors += 1

    def by_kind(self) -> dict[str, int]:
        """Return the number of requests since the start."""
        with self._lock:
            return self._counts.copy()

    def today(self, now_ns: int) -> int:
        """Return the number of requests since midnight, or since the first call on this day."""
        day = now_ns // _DAY_NS
        with self._lock:
            count = sum(self._counts.values())
            if day != self._day:
                if self._day:
                    self._counted = count
                self._day = day
            return count - self._counted


class CountedObjects(Objects):
    """The objects of a store; each call counts as a request, and each part of a large file."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.requests = Requests()

    def __repr__(self) -> str:
        return repr(self._objects)

    def create(self, name: str, data: bytes) -> Version:
        with self._counting(PUT):
            return self._objects.create(name, data)

    def get(self, name: str) -> tuple[bytes, Version]:
        with self._counting(GET):
            return self._objects.get(name)

    def get_range(self, name: str, start: int, end: int) -> bytes:
        with self._counting(GET):
            return self._objects.get_range(name, start, end)

    def swap(self, name: str, data: bytes, version: Version) -> Version:
        with self._counting(PUT):
            return self._objects.swap(name, data, version)

    def put_file(self, name: str, path: Path, size_bytes: int) -> None:
        count = 1
        if size_bytes > PART_BYTES:
            parts = -(-size_bytes // PART_BYTES)
            count = parts + 2  # the upload is begun, and completed
        with self._counting(PUT, count):
            self._objects.put_file(name, path, size_bytes)

    def delete(self, names: Iterable[str]) -> None:
        with self._counting(DELETE):
            self._objects.delete(names)

    def list(self, prefix: str) -> Iterator[Listed]:
        with self._counting(LIST):
            yield from self._objects.list(prefix)

    @contextmanager
    def _counting(self, kind: str, count: int = 1) -> Iterator[None]:
        self.requests.add(kind, count)
        try:
            yield
        except (StoreError, StoreRefused):
            self.requests.add_error()
            raise
