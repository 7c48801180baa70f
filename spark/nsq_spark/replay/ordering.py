"""Merge the messages of many parts of files by time, in bounded memory.

Rows are record batches with the columns of a mark. A source that is in order is read a chunk at a time, as far as the
merge has come. One that is not (a requeued message stands far behind its time) is sorted in slabs that fit into memory,
and these are written to temporary files. So is a source in order, where too many of them overlap in time.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nsq_spark.replay.positions import Mark, keys_of

_SLAB_BYTES = 32 * 1024 * 1024
_MOST_OPEN = 16
# Rows in a batch of a temporary file: this much of each open file is in memory.
_BATCH_ROWS = 4096

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Run:
    """Rows that are merged with others. `open` yields them; none is before `first_ns`; `is_sorted` by mark."""

    first_ns: int
    open: Callable[[], Batches]
    is_sorted: bool = True


class Spill:
    """A directory of temporary files of sorted rows, which are read by mapping them."""

    def __init__(self) -> None:
        where = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
        self._directory = tempfile.TemporaryDirectory(prefix="nsq-replay-", dir=where or None)
        self._count = 0

    def sorted(self, batches: Iterable[pa.RecordBatch]) -> Batches | None:
        """Write rows in their order, and return a reader of them that removes its file in the end; None for no rows."""
        small = (batch.slice(at, _BATCH_ROWS) for batch in batches for at in range(0, batch.num_rows, _BATCH_ROWS))
        first = next(small, None)
        if first is None:
            return None
        self._count += 1
        path = Path(self._directory.name) / f"{self._count}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
            writer.write_batch(first)
            for batch in small:
                writer.write_batch(batch)
        return _read(path)

    def close(self) -> None:
        self._directory.cleanup()


def _read(path: Path) -> Batches:
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
    finally:
        path.unlink(missing_ok=True)


class Merge:
    """`rows` yields all rows of all runs in the order of their marks."""

    def __init__(
        self, runs: Sequence[Run], spill: Spill, slab_bytes: int = _SLAB_BYTES, most_open: int = _MOST_OPEN
    ) -> None:
        self._waiting = deque(sorted(runs, key=lambda run: run.first_ns))
        self._open: list[_Front] = []
        self._spill = spill
        self._slab_bytes = slab_bytes
        self._most_open = most_open

    def rows(self) -> Batches:
        while True:
            self._open_due()
            if not self._open:
                return
            # All rows up to this mark are here: every open run reaches it, and the others begin behind it.
            bound = min(front.last for front in self._open)
            pieces = [front.take(bound) for front in self._open]
            self._open = [front for front in self._open if not front.is_over]
            found = [piece for piece in pieces if piece.num_rows]
            if found:
                yield in_order(found)

    def _open_due(self) -> None:
        while self._waiting:
            bound = min((front.last for front in self._open), default=None)
            if bound is not None and self._waiting[0].first_ns > bound[0]:
                return
            run = self._waiting.popleft()
            self._open += [front for front in self._fronts(run) if not front.is_over]

    def _fronts(self, run: Run) -> Iterator[_Front]:
        if run.is_sorted and sum(front.is_direct for front in self._open) < self._most_open:
            yield _Front(run.open(), is_direct=True)
            return
        slabs = [run.open()] if run.is_sorted else (iter([in_order(slab)]) for slab in self._slabs(run.open()))
        for slab in slabs:
            spilled = self._spill.sorted(slab)
            if spilled is not None:
                yield _Front(spilled, is_direct=False)

    def _slabs(self, batches: Batches) -> Iterator[list[pa.RecordBatch]]:
        slab: list[pa.RecordBatch] = []
        for batch in batches:
            slab.append(batch)
            if sum(one.nbytes for one in slab) >= self._slab_bytes:
                yield slab
                slab = []
        if slab:
            yield slab


class _Front:
    """The rows of one batch of a run that are not merged yet. `is_direct`: they are not from a temporary file."""

    def __init__(self, batches: Batches, *, is_direct: bool) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._keys: tuple[Any, ...] = ()
        self.is_direct = is_direct
        self._advance()

    @property
    def is_over(self) -> bool:
        return self._batch is None

    @property
    def last(self) -> Mark:
        times, files, positions = self._keys
        return (int(times[-1]), int(files[-1]), int(positions[-1]))

    def take(self, bound: Mark) -> pa.RecordBatch:
        """Remove and return the rows up to a mark that is not after `last`."""
        batch = self._batch
        assert batch is not None
        count = self._count_up_to(bound)
        if count == batch.num_rows:
            self._advance()
        else:
            self._batch = batch.slice(count)
            self._keys = tuple(key[count:] for key in self._keys)
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


def in_order(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches, sorted by mark."""
    together = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    times, files, positions = keys_of(together)
    order = np.lexsort((positions, files, times))
    return together if (np.diff(order) == 1).all() else together.take(pa.array(order))
