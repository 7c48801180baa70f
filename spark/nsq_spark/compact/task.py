"""The work of one task: write the messages of stored log files to a Parquet file. Executors run it in `mapInArrow`."""

from __future__ import annotations

import os
import pickle
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from nsq_spark.archive.read import read
from nsq_spark.archive.splits import ArchiveError, Damage, DamagedArchive, Requested, Skipped, plan_splits
from nsq_spark.archive.storage import Storage, is_local, local_path
from nsq_spark.compact.plan import Group, Log, file_name
from nsq_spark.compact.tables import COLUMNS, Written, open_directory, table_schema

RESULT = "result BINARY"
_ROW_GROUP_ROWS = 120_000
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_NO_TIME = 1 << 63


@dataclass(frozen=True)
class Result:
    """The outcome of one group: a file, or why there is none; and the damage that was skipped, by path."""

    number: int
    log: Log
    written: Written | None = None
    error: str = ""
    skipped: Mapping[str, Skipped] = field(default_factory=dict)


@dataclass
class Compactor:
    """Writes the groups whose numbers come.

    root      the directory of the files, which the driver adds to a table
    settings  those of Hadoop's file systems, for the directory
    """

    groups: Sequence[Group]
    storage: Storage
    root: str
    settings: Mapping[str, str]
    skips_damaged: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(self.result(number))]})

    def result(self, number: int) -> Result:
        damage = Damage("skip" if self.skips_damaged else "fail")
        group = self.groups[number]
        written = None
        text = ""
        try:
            written = self._write(group, damage)
        except DamagedArchive as error:
            text = f"{error.path} is damaged at {error.position}: {error.what}; --skip-damaged leaves it out"
        except (ArchiveError, OSError, pa.ArrowException) as error:
            text = str(error)
        return Result(number, group.log, written, text, damage.counts)

    def _write(self, group: Group, damage: Damage) -> Written:
        """Raises ArchiveError, OSError and pyarrow's errors."""
        name = file_name(group.log, group.span, secrets.token_hex(4))
        target = f"{self.root}/{name}"
        if is_local(self.root):
            path = Path(local_path(target))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as out:
                messages, first_ns, last_ns = self._write_rows(group, damage, out)
                size_bytes = out.tell()
                out.flush()
                os.fsync(out.fileno())
        else:
            # An object is there when it is complete, and pyarrow would complete what an error ends.
            with tempfile.NamedTemporaryFile() as out:
                messages, first_ns, last_ns = self._write_rows(group, damage, out)
                size_bytes = out.tell()
                out.flush()
                store = open_directory(self.root, self.settings)
                pafs.copy_files(out.name, store.inner(target), pafs.LocalFileSystem(), store.files)
        return Written(group.log, group.span, name, size_bytes, messages, (first_ns, last_ns))

    def _write_rows(self, group: Group, damage: Damage, out: IO[bytes]) -> tuple[int, int, int]:
        """Write a Parquet file. Return the number of messages, and the earliest and the latest time."""
        messages = 0
        first_ns = _NO_TIME
        last_ns = 0
        rows = _RowGroups(out)
        for split in plan_splits([file.info for file in group.files]):
            for chunk in read(split, self.storage, Requested(), damage):
                assert chunk.timestamps_ns is not None
                messages += chunk.count
                first_ns = min(first_ns, int(chunk.timestamps_ns.min()))
                last_ns = max(last_ns, int(chunk.timestamps_ns.max()))
                rows.add(chunk.arrow(COLUMNS))
        rows.close()
        return messages, min(first_ns, last_ns), last_ns


class _RowGroups:
    """Writes batches as row groups of a Parquet file."""

    def __init__(self, out: IO[bytes]) -> None:
        self._writer = pq.ParquetWriter(out, table_schema(), compression="zstd", write_page_checksum=True)
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._size_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._size_bytes += batch.nbytes
        if self._rows >= _ROW_GROUP_ROWS or self._size_bytes >= _ROW_GROUP_BYTES:
            self._write()

    def close(self) -> None:
        if self._batches:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._batches, table_schema()), self._rows)
        self._batches = []
        self._rows = 0
        self._size_bytes = 0
