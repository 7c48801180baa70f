"""Sorted rows in temporary files, read by mapping them: what is too much for memory, or not in order."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

# Of one batch of a file: so much of each file that is open is looked at, at a time.
_BATCH_ROWS = 4096


class Spill:
    """A directory of such files, which is gone at the end."""

    def __init__(self) -> None:
        where = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
        self._directory = tempfile.TemporaryDirectory(prefix="nsq-replay-", dir=where or None)
        self._count = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> Path | None:
        """A file of these rows in their order; None where there are none."""
        first = next(batches, None)
        if first is None:
            return None
        self._count += 1
        path = Path(self._directory.name) / f"{self._count}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
        return path

    def close(self) -> None:
        self._directory.cleanup()


def cut_small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, _BATCH_ROWS):
        yield batch.slice(start, _BATCH_ROWS)


def spilled(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file, which is gone afterwards."""
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
    finally:
        path.unlink(missing_ok=True)
