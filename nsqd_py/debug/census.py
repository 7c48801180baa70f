"""Which types use the memory: all objects that can be reached, counted by type.

The collector's own list would not do: it knows no `bytes`, which is what messages are, and nothing that was there
when the daemon had started (`gc.freeze`). So this follows references, from what the program works on.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import NamedTuple

_AT_ONCE = 100
# Each of the sets grows by itself, which takes it a few ms at most.
_SETS = 256


class TypeRow(NamedTuple):
    """All objects of one type; their sizes without what they refer to."""

    name: str
    objects: int
    size_bytes: int


class Census:
    """Counts what can be reached from `roots`. Objects come and go meanwhile: it is no picture of one moment."""

    __slots__ = ("_counts", "_pending", "_seen", "_sizes_bytes")

    def __init__(self, roots: Iterable[object]) -> None:
        self._pending = list(roots)
        self._seen: list[set[int]] = [set() for _ in range(_SETS)]
        self._counts: dict[type, int] = {}
        self._sizes_bytes: dict[type, int] = {}

    def count_some(self) -> bool:
        """Count a few more; False when all are counted."""
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
        """To be called at the end: letting go of the memory of a million objects at once would take 0.1 s."""
        if self._seen:
            self._seen.pop()
        return bool(self._seen)

    def _count(self, thing: object) -> None:
        kind = type(thing)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._sizes_bytes[kind] = self._sizes_bytes.get(kind, 0) + _size_bytes(thing)

    def rows(self) -> list[TypeRow]:
        """The largest first."""
        rows = [
            TypeRow(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), count, self._sizes_bytes[kind])
            for kind, count in self._counts.items()
        ]
        return sorted(rows, key=lambda row: (-row.size_bytes, row.name))


def _size_bytes(thing: object) -> int:
    try:
        return sys.getsizeof(thing)
    except Exception:  # noqa: BLE001 - a type may compute its size in code of its own, which is not our concern
        return 0
