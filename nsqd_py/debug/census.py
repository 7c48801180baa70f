"""A census of objects: number and size of all reachable objects, by type.

It follows references from given roots. The garbage collector's list is not enough: it has neither `bytes`, which
messages are, nor objects from before the end of the daemon's start (`gc.freeze`).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import NamedTuple

_AT_ONCE = 100
# Addresses are divided among many sets, because one large set would take long to grow; each of these takes a few ms.
_SETS = 256


class TypeRow(NamedTuple):
    """The objects of one type. Their sizes are without the objects that they refer to."""

    name: str
    objects: int
    size_bytes: int


class Census:
    """Counts the objects that are reachable from `roots`. It is no snapshot: objects may appear and go meanwhile."""

    __slots__ = ("_counts", "_pending", "_seen", "_sizes_bytes")

    def __init__(self, roots: Iterable[object]) -> None:
        self._pending = list(roots)
        self._seen: list[set[int]] = [set() for _ in range(_SETS)]
        self._counts: dict[type, int] = {}
        self._sizes_bytes: dict[type, int] = {}

    def count_some(self) -> bool:
        """Count some objects; return False when all are counted."""
        pending, seen = self._pending, self._seen
        for _ in range(min(_AT_ONCE, len(pending))):
            thing = pending.pop()
            address = id(thing)
            known = seen[address >> 4 & _SETS - 1]
            if address not in known:
                known.add(address)
                self._count(thing)
                pending += gc.get_referents(thing)
        return bool(pending)

    def forget_some(self) -> bool:
        """Free a part of the census's memory; return False when all is free. At once, a million objects take 0.1 s."""
        if self._seen:
            self._seen.pop()
        return bool(self._seen)

    def _count(self, thing: object) -> None:
        kind = type(thing)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._sizes_bytes[kind] = self._sizes_bytes.get(kind, 0) + _size_bytes(thing)

    def rows(self) -> list[TypeRow]:
        """Return the types, the largest total size first."""
        rows = [
            TypeRow(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), count, self._sizes_bytes[kind])
            for kind, count in self._counts.items()
        ]
        return sorted(rows, key=lambda row: (-row.size_bytes, row.name))


def _size_bytes(thing: object) -> int:
    try:
        return sys.getsizeof(thing)
    except Exception:  # noqa: BLE001 - a type may have a __sizeof__ that raises anything
        return 0
