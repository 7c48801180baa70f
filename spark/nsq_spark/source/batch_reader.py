"""The batch reader: the driver plans which task reads what; executors read parts of files as Arrow batches.

A task can send rows to Spark's driver, and nothing else. So each task that skipped damage writes a file with a line for
each finding: {"file":"/archive/a.framed","position":4096,"bytes":312,"what":"..."}. A task that is tried again writes
the same file again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.damage import ArchiveError, Damage, DamagedArchive, Finding
from nsq_spark.archive.listing import list_files
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import Split, pack, plan_splits
from nsq_spark.archive.storage import Storage, local_path
from nsq_spark.archive.wanted import Wanted
from nsq_spark.source.options import ReadOptions, split_bytes

_log = logging.getLogger("nsqd_py.spark")


@dataclass(frozen=True)
class Piece:
    """A split, and up to which position it is read; None: to its end."""

    split: Split
    until: int | None = None


@dataclass(repr=False)
class ArchivePartition(InputPartition):
    """What one task reads, and a name for it."""

    name: str
    options: ReadOptions
    columns: tuple[str, ...]
    pieces: list[Piece] = field(default_factory=list)


class NsqReader(DataSourceReader):
    """`spark.read.format("nsq")`.

    There is no `pushFilters` here: with it, Spark 4.3 counts wrong when a DataFrame is used again. Times and topics
    are options.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[ArchivePartition]:
        """Raises ArchiveError."""
        options = self._options
        files = list_files(options.paths, options.storage, options.hints, options.wanted)
        target_bytes = split_bytes(options.split_bytes, sum(info.size_bytes for info in files))
        splits = plan_splits(files, target_bytes, options.wanted)
        groups = [[Piece(split) for split in group] for group in pack(splits, target_bytes=target_bytes)]
        return partitions_of(groups, options, self._columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ArchivePartition):  # Spark makes one of its own if there is nothing to read
            yield from read_partition(partition)


def partitions_of(groups: Iterable[list[Piece]], options: ReadOptions, columns: tuple[str, ...]) -> list[ArchivePartition]:
    """Return a partition for each group. The same groups get the same names, others get other names."""
    listed = list(groups)
    digest = blake2b(repr(listed).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return [ArchivePartition(f"{digest}-{number:05d}", options, columns, pieces) for number, pieces in enumerate(listed)]


# ---- on executors


def read_partition(partition: ArchivePartition) -> Iterator[pa.RecordBatch]:
    """Yield batches with exactly the columns asked for, as Spark demands. Raises ArchiveError."""
    options = partition.options
    damage = Damage("skip" if options.skip_damaged else "fail")
    names = list(partition.columns)
    try:
        for piece in partition.pieces:
            for chunk in read_piece(piece, options.storage, options.wanted, damage):
                yield chunk.arrow(names)
    except DamagedArchive as error:
        where = f"{error.path} is damaged at {error.position}: {error.what}"
        raise ArchiveError(f"nsq: {where}; option skipDamaged reads what is left of it") from None
    for path, skipped in damage.counts.items():
        _log.warning("%s: %d damaged records passed over, %d bytes", path, skipped.records, skipped.size_bytes)
    if damage.findings and options.damage_report:
        _write_report(options.damage_report, partition.name, damage.findings)


def read_piece(piece: Piece, storage: Storage, wanted: Wanted, damage: Damage) -> Iterator[Chunk]:
    """Raises ArchiveError."""
    for chunk in read(piece.split, storage, wanted, damage):
        if piece.until is None or int(chunk.positions[-1]) <= piece.until:
            yield chunk
            continue
        part = chunk.slice(0, int(np.searchsorted(chunk.positions, piece.until, "right")))
        if part.count:
            yield part
        return


def _write_report(directory: str, name: str, findings: list[Finding]) -> None:
    """Write a file that appears as a whole. Raises ArchiveError."""
    path = Path(local_path(directory), f"{name}.jsonl")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{name}.tmp")
        temporary.write_bytes(b"".join(orjson.dumps(finding) + b"\n" for finding in findings))
        temporary.replace(path)
    except OSError as error:
        raise ArchiveError(f"nsq: option damageReport: {directory} cannot be written to: {error}") from error
