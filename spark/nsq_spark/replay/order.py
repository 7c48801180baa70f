"""Merges the messages of many parts of files into one order, by time, in bounded memory.

Rows are record batches; each has the columns that make its mark: `timestamp_ns`, `file_number`, `position`. A source
that is in order is read as far as the merge is, a chunk at a time. One that is not (a message that was requeued stands
far behind its time) is sorted in slabs that fit into memory, and they go to temporary files; so does one that is in
order where too many overlap in time. Sources are opened when the merge comes to their first time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from nsq_spark.replay.marks import Mark
from nsq_spark.replay.spill import Spill, cut_small, spilled

_SLAB_BYTES = 32 * 1024 * 1024
_MOST_OPEN = 16

KEYS = ("timestamp_ns", "file_number", "position")
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Run:
    """Rows to be merged. None of them is before `first_ns`; `open` gives them, and `is_sorted` tells by mark."""

    first_ns: int
    open: Callable[[], Batches]
    is_sorted: bool = True


class Merge:
    """`rows` gives all rows of all runs in the order of their marks."""

    def __init__(
        self, runs: Sequence[Run], spill: Spill, slab_bytes: int = _SLAB_BYTES, most_open: int = _MOST_OPEN
    ) -> None:
        self._waiting = deque(sorted(runs, key=lambda run: run.first_ns))
        self._open: list[_Front] = []
        self._spill = spill
        self._slab_bytes = slab_bytes
        self._most_open = most_open
        self._direct_count = 0

    def rows(self) -> Batches:
        while True:
            self._open_due()
            if not self._open:
                return
            # All before it is here: every open run reaches that far, and the others begin behind it.
            bound = min(front.last for front in self._open)
            pieces = [front.take(bound) for front in self._open]
            self._drop_ended()
            found = [piece for piece in pieces if piece is not None and piece.num_rows]
            if found:
                yield in_order(found)

    def _open_due(self) -> None:
        while self._waiting:
            bound = min((front.last for front in self._open), default=None)
            if bound is not None and self._waiting[0].first_ns > bound[0]:
                return
            for batches, is_direct in self._opened(self._waiting.popleft()):
                front = _Front(batches, is_direct=is_direct)
                if not front.is_over:
                    self._direct_count += is_direct
                    self._open.append(front)

    def _opened(self, run: Run) -> Iterator[tuple[Batches, bool]]:
        if not run.is_sorted:
            for slab in _slabs(run.open(), self._slab_bytes):
                path = self._spill.write(cut_small(in_order(slab)))
                if path is not None:
                    yield spilled(path), False
        elif self._direct_count >= self._most_open:
            path = self._spill.write(small for batch in run.open() for small in cut_small(batch))
            if path is not None:
                yield spilled(path), False
        else:
            yield run.open(), True

    def _drop_ended(self) -> None:
        self._direct_count -= sum(front.is_over and front.is_direct for front in self._open)
        self._open = [front for front in self._open if not front.is_over]


class _Front:
    """How far a run is: the rows of one batch that were not taken yet."""

    def __init__(self, batches: Batches, *, is_direct: bool) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._keys: tuple[Any, Any, Any] = (None, None, None)
        self.is_direct = is_direct
        self._advance()

    @property
    def is_over(self) -> bool:
        return self._batch is None

    @property
    def last(self) -> Mark:
        """Of the rows that are here."""
        times, files, positions = self._keys
        return (int(times[-1]), int(files[-1]), int(positions[-1]))

    def take(self, bound: Mark) -> pa.RecordBatch | None:
        """The rows up to a mark that is not behind `last`."""
        batch = self._batch
        assert batch is not None
        count = self._count_up_to(bound)
        if count == batch.num_rows:
            self._advance()
            return batch
        if not count:
            return None
        self._batch = batch.slice(count)
        times, files, positions = self._keys
        self._keys = (times[count:], files[count:], positions[count:])
        return batch.slice(0, count)

    def _count_up_to(self, bound: Mark) -> int:
        low, high = 0, len(self._keys[0])
        for key, value in zip(self._keys, bound, strict=True):
            end = low + int(np.searchsorted(key[low:high], value, "right"))
            low = low + int(np.searchsorted(key[low:high], value, "left"))
            high = end
        return high

    def _advance(self) -> None:
        self._batch = next((batch for batch in self._batches if batch.num_rows), None)
        if self._batch is not None:
            self._keys = keys_of(self._batch)


def keys_of(batch: pa.RecordBatch) -> tuple[Any, Any, Any]:
    times, files, positions = (batch.column(name).to_numpy(zero_copy_only=False) for name in KEYS)
    return times, files, positions


def in_order(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all of them, sorted by mark."""
    together = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    times, files, positions = keys_of(together)
    order = np.lexsort((positions, files, times))
    if (np.diff(order) == 1).all():
        return together
    return together.take(pa.array(order))


def _slabs(batches: Batches, slab_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    slab: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        slab.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= slab_bytes:
            yield slab
            slab, size_bytes = [], 0
    if slab:
        yield slab
