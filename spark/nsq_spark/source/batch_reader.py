"""The batch reader: on the driver, which task reads what; on the executors, reading it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsq_spark.archive.listing import list_files
from nsq_spark.archive.splits import pack, plan_splits
from nsq_spark.source.options import ReadOptions, split_bytes
from nsq_spark.source.partition import ArchivePartition, Piece, Reading, partitions_of, read_partition


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
