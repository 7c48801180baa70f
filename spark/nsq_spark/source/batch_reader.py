"""Reads archives as Arrow batches: the driver plans which task reads which parts of which files.

There is no `pushFilters` here: with it, Spark 4.3 counts wrong when a DataFrame is used again. Times and topics are
options.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsq_spark.archive.chunk import Chunk, constant
from nsq_spark.archive.listing import list_files
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import (
    OPEN_COST_BYTES,
    ArchiveError,
    Damage,
    DamagedArchive,
    FileInfo,
    Format,
    Names,
    Requested,
    Split,
    pack,
    plan_splits,
)
from nsq_spark.source.options import ReadOptions, split_bytes

# The slice of a file that a message is read from, as text: a column for spark-replay, not for users.
SLICE = "slice"
# Bodies are most of a Parquet file. Of the other columns, a query without bodies needs some.
_PARQUET_PER_READ_WITHOUT_BODIES = 8
# A chunk has one topic: where topics alternate in a file, a chunk has one message. A batch takes as long as a thousand messages.
_FEW_ROWS = 1000
_JOINED_ROWS = 10_000
_JOINED_BYTES = 4 * 1024 * 1024

Rows: TypeAlias = Iterator[pa.RecordBatch]
_log = logging.getLogger("nsqd_py.spark")


@dataclass(repr=False)
class ArchivePartition(InputPartition):
    """The messages that one task reads."""

    options: ReadOptions
    columns: Names
    splits: Sequence[Split] = ()

    def chooser(self) -> Callable[[Chunk], Chunk] | None:
        """Return what takes the messages to read from each chunk in turn; None for all."""
        return None


@dataclass
class NsqReader(DataSourceReader):
    """`spark.read.format("nsq")`."""

    _options: ReadOptions
    _columns: Names

    def partitions(self) -> list[ArchivePartition]:
        """Raises ArchiveError."""
        options = self._options
        return partitions_of(
            list_files(
                options.paths,
                options.storage,
                options.hints,
                options.requested,
                skips_damaged=options.skip_damaged,
            ),
            options,
            self._columns,
        )

    def read(self, partition: InputPartition) -> Rows:
        if isinstance(partition, ArchivePartition):  # Spark makes an empty one if there is nothing to read
            yield from read_partition(partition)


def partitions_of(
    files: Sequence[FileInfo],
    options: ReadOptions,
    columns: Sequence[str],
    done: frozenset[str] = frozenset(),
) -> list[ArchivePartition]:
    """Return a partition for each task; none of slices that are done."""
    sizes_bytes = sum(info.size_bytes for info in files)
    costs_bytes = sizes_bytes + OPEN_COST_BYTES * len(files)
    most_bytes = _split_bytes(files, sizes_bytes, options, columns)
    planned = plan_splits(files, most_bytes, options.requested)
    splits = [split for split in planned if slice_name(split) not in done]
    groups = pack(splits, target_bytes=_split_bytes(files, costs_bytes, options, columns))
    return [ArchivePartition(options, tuple(columns), group) for group in groups]


def tasks_of(files: Sequence[FileInfo], options: ReadOptions) -> list[list[Split]]:
    """Return the splits of files that each task reads."""
    target_bytes = split_bytes(options.split_bytes, sum(info.size_bytes for info in files))
    return pack(plan_splits(files, target_bytes), target_bytes)


def _split_bytes(
    files: Sequence[FileInfo], total_bytes: int, options: ReadOptions, columns: Sequence[str]
) -> int:
    """Return the bytes of files for each task. Of Parquet without bodies, a task reads only some of them."""
    needs_bodies = Requested(columns=frozenset(columns)).needs_bodies
    has_bodies = needs_bodies or any(info.format is not Format.PARQUET for info in files)
    part = 1
    if not has_bodies and not options.split_bytes:
        part = _PARQUET_PER_READ_WITHOUT_BODIES
    return part * split_bytes(options.split_bytes, total_bytes // part, options.parallelism)


@cache
def leave_out_of_collections() -> None:
    """Let Python's garbage collector pass over what the first task of a worker finds: mostly modules.

    PySpark collects garbage after each task, which takes 30 ms otherwise: as long as reading 100,000 messages.
    """
    gc.freeze()


def slice_name(split: Split) -> str:
    if split.numbers is None:
        numbers = ""
    else:
        numbers = "#{}-{}".format(*split.numbers)
    return f"{split.start}+{split.size_bytes}:{split.path}{numbers}"


def read_partition(partition: ArchivePartition, damage: Damage | None = None) -> Rows:
    """Yield batches with exactly the columns asked for, as Spark demands. Raises ArchiveError."""
    yield from joined(_chunks_of(partition, damage))


def joined(batches: Rows) -> Rows:
    """Yield the same rows in fewer batches: join small ones. Rows in front of an ArchiveError are yielded before it is raised."""
    small: list[pa.RecordBatch] = []
    row_count = 0
    size_bytes = 0
    try:
        for batch in batches:
            is_small = batch.num_rows < _FEW_ROWS
            if is_small:
                small.append(batch)
                row_count += batch.num_rows
                size_bytes += batch.nbytes
            if not is_small or row_count >= _JOINED_ROWS or size_bytes >= _JOINED_BYTES:
                yield from _as_one(small)
                small.clear()
                row_count = 0
                size_bytes = 0
            if not is_small:
                yield batch
    except ArchiveError:
        yield from _as_one(small)
        raise
    yield from _as_one(small)


def _as_one(batches: Sequence[pa.RecordBatch]) -> Rows:
    if len(batches) < 2:
        yield from batches
        return
    yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def _chunks_of(partition: ArchivePartition, damage: Damage | None) -> Rows:
    """Yield a batch for each chunk. Raises ArchiveError."""
    leave_out_of_collections()
    options = partition.options
    damage = damage or options.damage()
    choose = partition.chooser()
    requested = options.requested
    # A chooser asks for ids; and with damage that is skipped, the rows must not depend on the columns.
    if not (choose or options.skip_damaged):
        requested = replace(requested, columns=frozenset(partition.columns))
    try:
        for split in partition.splits:
            for chunk in read(split, options.storage, requested, damage):
                if choose:
                    chunk = choose(chunk)
                if chunk.count:
                    part = constant(slice_name(split), chunk.count)
                    columns = {
                        name: part if name == SLICE else chunk.column(name) for name in partition.columns
                    }
                    yield pa.RecordBatch.from_pydict(columns)
    except DamagedArchive as error:
        where = f"{error.path} is damaged at {error.position}: {error.what}"
        raise ArchiveError(f"nsq: {where}; option skipDamaged reads what is left of it") from None
    for path, skipped in damage.counts.items():
        _log.warning(
            "%s: %d damaged records passed over, %d bytes", path, skipped.records, skipped.size_bytes
        )
