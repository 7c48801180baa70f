"""The batch reader: on the driver, which task reads what; on the executors, parts of files become Arrow batches.

A task can send rows to Spark's driver, and nothing else. So each task that passed over damage writes a file with a line
for each finding: {"file":"/archive/a.framed","position":4096,"bytes":312,"what":"..."}. A task that is tried again
writes the same file again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.damage import ArchiveError, Damage, DamagedArchive, Policy, Skipped
from nsq_spark.archive.listing import list_files
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import Split, pack, plan_splits
from nsq_spark.archive.storage import Storage, local_path
from nsq_spark.archive.wanted import Wanted
from nsq_spark.source.options import ReadOptions, split_bytes

# ---- what was passed over

_log = logging.getLogger("nsqd_py.spark")


@dataclass(frozen=True, slots=True)
class Finding:
    """A stretch of a file that is no message: where it begins, in the decompressed file, and how long it is."""

    file: str
    position: int
    bytes: int
    what: str


class FindingDamage(Damage):
    """Remembers each stretch, not only how many there were."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.findings: list[Finding] = []

    def found(self, path: str, start: int, end: int, what: str) -> None:
        super().found(path, start, end, what)
        self.findings.append(Finding(path, start, max(0, end - start), what))


def say(findings: list[Finding]) -> None:
    """A line for each file in the log of the executor, which is stderr in local mode."""
    for path, skipped in counts(findings).items():
        _log.warning("%s: %d damaged records passed over, %d bytes", path, skipped.records, skipped.size_bytes)


def counts(findings: list[Finding]) -> dict[str, Skipped]:
    """By path."""
    found: dict[str, Skipped] = defaultdict(Skipped)
    for finding in findings:
        found[finding.file].records += 1
        found[finding.file].size_bytes += finding.bytes
    return found


def write_report(directory: str, name: str, findings: list[Finding]) -> None:
    """Nobody sees half a file. Raises ArchiveError."""
    lines = b"".join(orjson.dumps(asdict(finding)) + b"\n" for finding in findings)
    path = Path(local_path(directory), f"{name}.jsonl")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{name}.tmp")
        temporary.write_bytes(lines)
        temporary.replace(path)
    except OSError as error:
        raise ArchiveError(f"nsq: option damageReport: {directory} cannot be written to: {error}") from error


# ---- what a task reads


@dataclass(frozen=True)
class Piece:
    """A split, and up to which position it is read; None: to its end."""

    split: Split
    until: int | None = None


@dataclass(frozen=True)
class Reading:
    """What is the same for all tasks of a query. Goes to the executors as it is."""

    storage: Storage
    wanted: Wanted
    columns: tuple[str, ...]
    skip_damaged: bool = False
    damage_report: str = ""


@dataclass(repr=False)
class ArchivePartition(InputPartition):
    """What one task reads, and a name for it."""

    name: str
    reading: Reading
    pieces: list[Piece] = field(default_factory=list)


def partitions_of(groups: Iterable[list[Piece]], reading: Reading) -> list[ArchivePartition]:
    """One for each group. What is read again gets the same names, what is something else gets others."""
    listed = list(groups)
    digest = blake2b(repr(listed).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return [ArchivePartition(f"{digest}-{number:05d}", reading, pieces) for number, pieces in enumerate(listed)]


def read_partition(partition: ArchivePartition) -> Iterator[pa.RecordBatch]:
    """Batches with exactly the columns asked for, as Spark demands. Raises ArchiveError and BadSource."""
    reading = partition.reading
    damage = FindingDamage("skip" if reading.skip_damaged else "fail")
    names = list(reading.columns)
    try:
        for piece in partition.pieces:
            for chunk in read_piece(piece, reading.storage, reading.wanted, damage):
                yield chunk.arrow(names)
    except DamagedArchive as error:
        where = f"{error.path} is damaged at {error.position}: {error.what}"
        raise ArchiveError(f"nsq: {where}; option skipDamaged reads what is left of it") from None
    _report(damage.findings, partition)


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


def _report(findings: list[Finding], partition: ArchivePartition) -> None:
    if not findings:
        return
    say(findings)
    if partition.reading.damage_report:
        write_report(partition.reading.damage_report, partition.name, findings)


# ---- the reader


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
        return partitions_of(groups, reading_of(options, self._columns))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ArchivePartition):  # Spark makes one of its own where there is nothing to read
            yield from read_partition(partition)


def reading_of(options: ReadOptions, columns: tuple[str, ...]) -> Reading:
    return Reading(options.storage, options.wanted, columns, options.skip_damaged, options.damage_report)
