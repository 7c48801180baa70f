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
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from nsq_spark.replay.positions import KEYS, Mark, marks_of

_SLAB_BYTES = 32 * 1024 * 1024
_MOST_OPEN = 16
# Rows in a batch of a temporary file: this much of each open file is in memory.
_BATCH_ROWS = 4096

Batches = Iterator[pa.RecordBatch]


class Run(NamedTuple):
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

    def sorted(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        """Write rows in their order, and return a reader of them that removes its file in the end."""
        small = (batch.slice(at, _BATCH_ROWS) for batch in batches for at in range(0, batch.num_rows, _BATCH_ROWS))
        first = next(small, None)
        if first is None:
            return iter(())
        self._count += 1
        path = Path(self._directory.name) / f"{self._count}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
            for batch in chain((first,), small):
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

    def __init__(self, runs: Sequence[Run], spill: Spill, slab_bytes: int = _SLAB_BYTES, most_open: int = _MOST_OPEN) -> None:
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
            self._open = [front for front in self._open if front.rows is not None]
            yield in_order([piece for piece in pieces if piece.num_rows])

    def _open_due(self) -> None:
        while self._waiting:
            bound = min((front.last for front in self._open), default=None)
            if bound is not None and self._waiting[0].first_ns > bound[0]:
                return
            self._open += [front for front in self._fronts(self._waiting.popleft()) if front.rows is not None]

    def _fronts(self, run: Run) -> Iterator[_Front]:
        if not run.is_sorted:
            for slab in self._slabs(run.open()):
                yield _Front(self._spill.sorted([in_order(slab)]), is_direct=False)
        elif sum(front.is_direct for front in self._open) < self._most_open:
            yield _Front(run.open(), is_direct=True)
        else:
            yield _Front(self._spill.sorted(run.open()), is_direct=False)

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
    """The rows of one batch of a run that are left to merge; None in the end. `is_direct`: not from a file of ours."""

    def __init__(self, batches: Batches, *, is_direct: bool) -> None:
        self._batches = (batch for batch in batches if batch.num_rows)
        self.is_direct = is_direct
        self._set(next(self._batches, None))

    def _set(self, rows: pa.RecordBatch | None) -> None:
        self.rows = rows
        if rows is not None:
            self._marks = marks_of(rows)

    @property
    def last(self) -> Mark:
        return self._marks.at(-1)

    def take(self, bound: Mark) -> pa.RecordBatch:
        """Remove and return the rows up to a mark that is not after `last`."""
        rows = self.rows
        assert rows is not None
        count = int(np.count_nonzero(self._marks.up_to(bound)))
        self._set(rows.slice(count) if count < rows.num_rows else next(self._batches, None))
        return rows.slice(0, count)


def in_order(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches, sorted by mark."""
    together = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    order = np.lexsort([together.column(name).to_numpy(zero_copy_only=False) for name in reversed(KEYS)])
    return together if (np.diff(order) == 1).all() else together.take(pa.array(order))
