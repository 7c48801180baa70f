"""Reads a split as chunks, whatever its format, compressed or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from nsq_spark.archive.chunk import Chunks
from nsq_spark.archive.files import decompressed
from nsq_spark.archive.formats import lines, parquet, record_file
from nsq_spark.archive.splits import LINE_FORMATS, ArchiveError, Compression, Damage, Format, Requested, Split
from nsq_spark.archive.storage import Storage
from nsqd_py.stores.files import File

Reader = Callable[[File, Split, Requested, Damage], Chunks]

_READERS: dict[Format, Reader] = {
    Format.LINES: lines.read,
    Format.JSONL: lines.read_jsonl,
    Format.FRAMED: record_file.read,
    Format.PARQUET: parquet.read,
    Format.TOPIC_LOG: record_file.read,
}


def read(
    split: Split, storage: Storage, requested: Requested | None = None, damage: Damage | None = None
) -> Chunks:
    """Yield the requested messages of a split in order of their positions, in chunks of at most 50,000 and 4 MiB.

    Without `damage`, damage is an error. Raises ArchiveError, DamagedArchive among them, and nothing else.
    """
    requested = requested or Requested()
    damage = damage or Damage()
    if not split.format.has_timestamps:  # the whole file was chosen
        requested = replace(requested, start_ns=None, end_ns=None)
    for chunk in _chunks(split, storage, requested, damage):
        if split.numbers is not None:
            low, high = split.numbers
            numbers = chunk.positions
            chunk = chunk.filter((numbers >= low) & (numbers < high))
        yield from chunk.requested(requested).bounded()


def _chunks(split: Split, storage: Storage, requested: Requested, damage: Damage) -> Chunks:
    file = storage.open(split.path)
    reader = _READERS[split.format]
    try:
        with file:
            size = file.size_bytes
            # The others may grow.
            if size < split.end or (split.format is Format.PARQUET and size != split.file_bytes):
                damage.found(
                    split.path, size, split.end, "it has another size than when the reading was planned"
                )
            # Lines are decompressed as they are read.
            if split.compression is Compression.NONE or split.format in LINE_FORMATS:
                yield from reader(file, split, requested, damage)
                return
            with decompressed(file, split, damage) as plain:
                size = plain.size_bytes
                whole = replace(split, compression=Compression.NONE, end=size, file_bytes=size)
                yield from reader(plain, whole, requested, damage)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"{split.path} cannot be read: {error}") from error
