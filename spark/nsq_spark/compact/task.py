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
from nsqd_py.stores.commits import row_groups

RESULT = "result BINARY"
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

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal messages, first_ns, last_ns
            for split in plan_splits([file.info for file in group.files]):
                for chunk in read(split, self.storage, Requested(), damage):
                    assert chunk.timestamps_ns is not None
                    messages += chunk.count
                    first_ns = min(first_ns, int(chunk.timestamps_ns.min()))
                    last_ns = max(last_ns, int(chunk.timestamps_ns.max()))
                    yield chunk.arrow(COLUMNS)

        schema = table_schema()
        with pq.ParquetWriter(out, schema, compression="zstd", write_page_checksum=True) as writer:
            for some in row_groups(batches(), lambda batch: (batch.num_rows, batch.nbytes)):
                table = pa.Table.from_batches(some, schema)
                writer.write_table(table, table.num_rows)
        return messages, min(first_ns, last_ns), last_ns
