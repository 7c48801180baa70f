"""Files that grow: up to where they are whole, so that the rest can be read another time."""

from __future__ import annotations

import pyarrow as pa

from nsq_spark.archive.damage import Damage
from nsq_spark.archive.errors import ArchiveError
from nsq_spark.archive.formats import Compression, Format
from nsq_spark.archive.record_file import walk
from nsq_spark.archive.splits import Split
from nsq_spark.archive.storage import File, Storage
from nsq_spark.archive.wanted import Wanted

_BLOCK_BYTES = 256 * 1024


def whole_end(split: Split, storage: Storage) -> int:
    """Where the last record or line ends that is whole and begins in the split; `split.start` if there is none yet.

    So `split.between(0, end)` is read now, and `split.between(end, later_end)` another time. Damage with something
    good behind it is passed over. Compressed files, Parquet and Go's queues end where the split does: they are not
    read while they grow. Raises ArchiveError.
    """
    try:
        with storage.open(split.path) as file:
            if split.compression is not Compression.NONE:
                return split.end
            if split.format in (Format.LINES, Format.JSONL):
                return _end_of_lines(file, split.start, min(split.end, file.size_bytes))
            if split.format in (Format.FRAMED, Format.TOPIC_LOG):
                return _end_of_records(file, split)
            return split.end
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"{split.path} cannot be read: {error}") from error


def _end_of_lines(file: File, start: int, end: int) -> int:
    while end > start:
        low = max(start, end - _BLOCK_BYTES)
        found = file.read_at(low, end - low).rfind(b"\n")
        if found >= 0:
            return low + found + 1
        end = low
    return start


def _end_of_records(file: File, split: Split) -> int:
    records = walk(file, split, Wanted(), Damage("skip"))
    for _ in records.run():
        pass
    return max(split.start, records.whole_until)
