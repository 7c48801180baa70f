"""The seven calls of objects by name, and their errors.

`CloudObjects` has them in a bucket, `DirectoryObjects` in a directory. They block: nsqd calls them in a thread.

A write whose answer is lost may still have happened, or may happen later. So only conditional writes decide anything: a
caller that gets `Exists`, `Changed` or `StoreError` reads the object to know what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from nsqd_py.errors import NsqdError

# A larger file is put in parts of this size, with a request for each: the least that S3 takes.
PART_BYTES = 5 * 1024 * 1024

# Identifies one content of an object. Some stores compute it from the content: who swaps must never write a content again.
Version = Any


class StoreError(NsqdError):
    """The store does not answer, or cannot at the moment: the call may have had its effect, and may be repeated."""


class StoreRefused(NsqdError):
    """The store refuses, and will refuse again: wrong credentials, no such bucket, no conditional writes."""


class Exists(NsqdError):
    """An object of this name is there already."""


class Missing(NsqdError):
    """There is no object of this name."""


class Changed(NsqdError):
    """The object has another version than the expected one."""


class Listed(NamedTuple):
    """An object in a list."""

    name: str
    size_bytes: int


class ReadableObjects(Protocol):
    """The objects below one prefix, for who reads a store in place. See `Objects`."""

    def get(self, name: str) -> tuple[bytes, Version]:
        """Return the content and its version. Raises Missing."""
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield the objects below `prefix/` in any order; new ones may be missing."""
        ...


class Objects(ReadableObjects, Protocol):
    """The objects below one prefix. Names are paths of `/` and characters that need no quoting.

    All calls raise StoreError and StoreRefused. They may be called from several threads at once.
    """

    def create(self, name: str, data: bytes) -> Version:
        """Write a new object and return its version. Raises Exists, also if an earlier attempt of this call has written it."""
        ...

    def get_range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`, or fewer if the object ends before. Raises Missing."""
        ...

    def swap(self, name: str, data: bytes, version: Version) -> Version:
        """Replace this version of an object, and return the new one; without a version, create it.

        Raises Changed if the object has another version, or is not there, or is there already.
        """
        ...

    def put_file(self, name: str, path: Path, size_bytes: int) -> None:
        """Write the first bytes of a file as an object, whether there is one or not. Raises OSError if they cannot be read."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there count as deleted."""
        ...


def created_by_swap(objects: Objects, name: str, data: bytes) -> Version:
    """Do what `swap` does without a version: create an object, and return its version. Raises Changed if it is there already."""
    try:
        return objects.create(name, data)
    except Exists as error:
        raise Changed(str(error)) from None
