"""A topic as a table: what its nsqds keep between two places. Each task reads a stretch of sequence numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from nsq_spark.archive.chunk import Chunk, MessageOrigin, index_in_records
from nsq_spark.archive.files import File
from nsq_spark.archive.record_file import published_chunks
from nsq_spark.archive.records import Walk
from nsq_spark.archive.splits import ArchiveError, Compression, Damage, Format, Split, Wanted
from nsq_spark.source.live_offsets import NumberRange, TopicOffset
from nsq_spark.source.live_options import LiveOptions
from nsq_spark.source.nsqds import LiveTopic, NoTopic, patiently, read, report_loss, tcp_address
from nsqd_py.diskqueue.records import PUBLISHED

_READ_BYTES = 8 * 1024 * 1024


class LiveBatchReader(DataSourceReader):
    """`spark.read` with an option `nsqd` or `lookupd`. Each query reads what is kept then."""

    def __init__(self, options: LiveOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[TopicPartition]:
        """Raises ArchiveError, LostMessages."""
        options, topic = self._options, LiveTopic(self._options)
        stretches, there = {}, topic.kept(of_all=True)
        lows = topic.places("startingOffsets", options.start, there)
        highs = topic.places("endingOffsets", options.end, there)
        for nsqd, kept in there.items():
            low, high = lows[nsqd], highs[nsqd]
            lost = min(high, kept.earliest_seq) - low
            report_loss(nsqd, options.topic, low, lost, fails=options.fails_on_loss)
            low, high = max(low, kept.earliest_seq), min(high, kept.end_seq)
            stretches[nsqd] = NumberRange(low, max(low, high), kept.epoch)
        return partitions_of(TopicOffset(stretches), options, self._columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, TopicPartition):  # Spark makes one of its own if there is nothing to read
            yield from read_stretch(partition)


@dataclass(repr=False)
class TopicPartition(InputPartition):
    """Messages of a topic on one nsqd, and the columns to return."""

    nsqd: str
    numbers: NumberRange
    columns: tuple[str, ...]
    options: LiveOptions


def partitions_of(offset: TopicOffset, options: LiveOptions, columns: tuple[str, ...]) -> list[TopicPartition]:
    """Return a partition for each nsqd, or as many parts as `minPartitions` asks for."""
    stretches = {nsqd: stretch for nsqd, stretch in offset.stretches.items() if stretch.messages}
    each = -(-options.least_partitions // max(1, len(stretches)))
    return [TopicPartition(nsqd, part, columns, options) for nsqd, stretch in stretches.items() for part in stretch.cut(each)]


# ---- on executors


def read_stretch(part: TopicPartition) -> Iterator[pa.RecordBatch]:
    """Raises ArchiveError, LostMessages among them."""
    options, topic = part.options, part.options.topic
    names = list(part.columns)
    address = part.nsqd if "://" in part.nsqd else f"http://{part.nsqd}"
    nsqd = patiently(partial(tcp_address, part.nsqd, options.client), options.give_up_after_s) if "nsqd" in names else ""
    seq, end, epoch = part.numbers
    while seq < end:
        try:
            kept = patiently(partial(read, part.nsqd, topic, _READ_BYTES, options.client, seq=seq), options.give_up_after_s)
        except NoTopic:
            report_loss(part.nsqd, topic, seq, end - seq, fails=options.fails_on_loss)
            return
        if kept.epoch != epoch:
            report_loss(part.nsqd, topic, seq, end - seq, fails=options.fails_on_loss, is_another=True)
            return
        count = 0
        for chunk in _chunks(kept.data, f"{address}/topic/read?topic={topic}", topic):
            wanted = chunk.filter((chunk.positions >= seq) & (chunk.positions < end))
            count += wanted.count
            if wanted.count:
                yield replace(wanted, nsqds=nsqd or None).arrow(names)
        following = min(kept.next_seq, end) if kept.next_seq > seq else end
        report_loss(part.nsqd, topic, seq, following - seq - count, fails=options.fails_on_loss)
        seq = following


class _Answer(File):
    """An answer of an nsqd as a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def close(self) -> None:
        pass


def _chunks(data: bytes, url: str, topic: str) -> Iterator[Chunk]:
    """Yield the messages of an answer, with sequence numbers for positions."""
    size = len(data)
    split = Split(url, Format.TOPIC_LOG, Compression.NONE, 0, size, topic, size, 0)
    wanted, origin = Wanted(), MessageOrigin(topic, None, url)
    for records in Walk(_Answer(data), split, wanted, Damage()).run():
        if (records.headers["kind"] != PUBLISHED).any():
            raise ArchiveError(f"{url} has records of another kind: of a later version of nsqd?")
        counts = records.headers["count"].astype(np.int64)
        numbers = np.repeat(records.headers["first_seq"].astype(np.int64), counts) + index_in_records(counts)
        for chunk in published_chunks(records, 0, len(records.places), origin, wanted):
            own, numbers = numbers[: chunk.count], numbers[chunk.count :]
            yield replace(chunk, positions=own)
