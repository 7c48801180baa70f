"""A table of what the nsqds keep of a topic, between two places: `spark.read` with an option `nsqd` or `lookupd`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsq_spark.source.live.offsets import Stretch, TopicOffset
from nsq_spark.source.live.options import LiveOptions
from nsq_spark.source.live.task import TopicPartition, read_stretch, tell_of_loss
from nsq_spark.source.live.topic import LiveTopic


class LiveBatchReader(DataSourceReader):
    """Reads each time what is kept then: from `startingOffsets` up to `endingOffsets`."""

    def __init__(self, options: LiveOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[TopicPartition]:
        """Raises ArchiveError, LostMessages."""
        options, topic = self._options, LiveTopic(self._options)
        stretches = {}
        for nsqd, kept in topic.kept(of_all=True).items():
            low, high = topic.place(nsqd, kept, options.start), topic.place(nsqd, kept, options.end)
            lost = min(high, kept.earliest_seq) - low
            tell_of_loss(nsqd, options.topic, low, lost, fails=options.fails_on_loss)
            low, high = max(low, kept.earliest_seq), min(high, kept.end_seq)
            stretches[nsqd] = Stretch(low, max(low, high))
        return topic.partitions(TopicOffset(stretches), self._columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, TopicPartition):  # Spark makes one of its own where there is nothing to read
            yield from read_stretch(partition)
