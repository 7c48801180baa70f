"""A topic as a table, and as a stream: what its nsqds keep. Each task reads a range of sequence numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from nsq_spark.archive.chunk import Chunk, MessageOrigin, index_in_records
from nsq_spark.archive.files import File
from nsq_spark.archive.record_file import published_chunks
from nsq_spark.archive.records import Walk
from nsq_spark.archive.splits import ArchiveError, Compression, Damage, Format, Split, Wanted
from nsq_spark.source.live_options import LiveOptions, NumberRange, TopicOffset, next_batch
from nsq_spark.source.nsqds import Kept, LiveTopic, NoTopic, patiently, read, report_loss, tcp_address
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
        ranges, there = {}, topic.kept(of_all=True)
        lows = topic.places("startingOffsets", options.start, there)
        highs = topic.places("endingOffsets", options.end, there)
        for nsqd, kept in there.items():
            low, high = lows[nsqd], highs[nsqd]
            lost = min(high, kept.earliest_seq) - low
            report_loss(nsqd, options.topic, low, lost, fails=options.fails_on_loss)
            low, high = max(low, kept.earliest_seq), min(high, kept.end_seq)
            ranges[nsqd] = NumberRange(low, max(low, high), kept.epoch)
        return partitions_of(TopicOffset(ranges), options, self._columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, TopicPartition):  # Spark makes one of its own if there is nothing to read
            yield from read_range(partition)


@dataclass(repr=False)
class TopicPartition(InputPartition):
    """Messages of a topic on one nsqd, and the columns to return."""

    nsqd: str
    numbers: NumberRange
    columns: tuple[str, ...]
    options: LiveOptions


def partitions_of(offset: TopicOffset, options: LiveOptions, columns: tuple[str, ...]) -> list[TopicPartition]:
    """Return a partition for each nsqd, or as many parts as `minPartitions` asks for."""
    ranges = {nsqd: part for nsqd, part in offset.ranges.items() if part.messages}
    each = -(-options.least_partitions // max(1, len(ranges)))
    return [TopicPartition(nsqd, part, columns, options) for nsqd, whole in ranges.items() for part in whole.cut(each)]


class LiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("nsq")` with an option `nsqd` or `lookupd`. A partition is an nsqd."""

    def __init__(self, options: LiveOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._target: dict[str, int] | None = None
        self._known: set[str] = set()
        self._ends: dict[str, NumberRange] = {}
        self._topic = LiveTopic(options)

    def initialOffset(self) -> dict[str, Any]:
        """Raises ArchiveError."""
        there = self._topic.kept(of_all=True)
        begins = self._topic.places("startingOffsets", self._options.start, there)
        return TopicOffset({nsqd: there[nsqd].at(seq) for nsqd, seq in begins.items()}).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.most_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Raises ArchiveError."""
        self._target = {nsqd: kept.end_seq for nsqd, kept in self._topic.kept(of_all=True).items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raises ArchiveError, LostMessages, BadOffset."""
        before = TopicOffset.of_json(start)
        self._known |= set(before.ranges)
        there = self._topic.kept(self._known, of_all=self._target is not None)
        starts = self._starts(before, there)
        self._ends |= {nsqd: kept.at(kept.end_seq) for nsqd, kept in there.items()}
        upto = {nsqd: self._end(nsqd, kept) for nsqd, kept in there.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        batch = next_batch(starts, upto, most)
        return batch.to_json() if any(part.messages for part in batch.ranges.values()) else start

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the topic ended when its nsqds were last asked; Spark shows it next to how far a query is."""
        return TopicOffset(self._ends).to_json()

    def _starts(self, before: TopicOffset, there: Mapping[str, Kept]) -> dict[str, NumberRange]:
        """Return where the next batch begins: at a new nsqd, with the earliest message that it keeps."""
        starts = before.ends
        for nsqd, kept in there.items():
            start = starts.setdefault(nsqd, kept.at(kept.earliest_seq))
            is_another = kept.epoch != start.epoch or kept.end_seq < start.low
            lost, fails = kept.earliest_seq - start.low, self._options.fails_on_loss
            report_loss(nsqd, self._options.topic, start.low, lost, fails=fails, is_another=is_another)
            if is_another or lost > 0:
                starts[nsqd] = kept.at(kept.earliest_seq)
        return starts

    def _end(self, nsqd: str, kept: Kept) -> int:
        return kept.end_seq if self._target is None else min(kept.end_seq, self._target.get(nsqd, 0))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TopicPartition]:
        """Raises BadOffset."""
        return [] if start == end else partitions_of(TopicOffset.of_json(end), self._options, self._columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicPartition)
        return read_range(partition)


# ---- on executors


def read_range(part: TopicPartition) -> Iterator[pa.RecordBatch]:
    """Raises ArchiveError, LostMessages among them."""
    options, topic = part.options, part.options.topic
    names = list(part.columns)
    address = part.nsqd if "://" in part.nsqd else f"http://{part.nsqd}"
    nsqd = patiently(partial(tcp_address, part.nsqd, options.access), options.give_up_after_s) if "nsqd" in names else ""
    seq, end, epoch = part.numbers
    while seq < end:
        try:
            kept = patiently(partial(read, part.nsqd, topic, _READ_BYTES, options.access, seq=seq), options.give_up_after_s)
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
