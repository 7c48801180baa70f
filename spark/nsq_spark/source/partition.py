"""What a task reads, and how: parts of files become Arrow batches with the columns that were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.damage import Damage
from nsq_spark.archive.errors import ArchiveError, DamagedArchive
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import Split
from nsq_spark.archive.storage import Storage
from nsq_spark.archive.wanted import Wanted
from nsq_spark.source.damage_report import Finding, FindingDamage, say, write_report


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
