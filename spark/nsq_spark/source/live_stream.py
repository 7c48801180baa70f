"""A topic as a stream: where it begins, how far each batch goes, and which task reads what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from nsq_spark.source.live_batch import TopicPartition, partitions_of, read_stretch
from nsq_spark.source.live_offsets import NumberRange, TopicOffset, next_batch
from nsq_spark.source.live_options import LiveOptions
from nsq_spark.source.nsqds import Kept, LiveTopic, report_loss


class LiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("nsq")` with an option `nsqd` or `lookupd`. A partition is an nsqd."""

    def __init__(self, options: LiveOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._target: dict[str, int] | None = None
        self._known: set[str] = set()
        self._ends: dict[str, NumberRange] = {}
        self._topic = LiveTopic(options)

    # ---- how far

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
        self._known |= set(before.stretches)
        there = self._topic.kept(self._known, of_all=self._target is not None)
        starts = self._starts(before, there)
        self._ends |= {nsqd: kept.at(kept.end_seq) for nsqd, kept in there.items()}
        upto = {nsqd: self._end(nsqd, kept) for nsqd, kept in there.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        batch = next_batch(starts, upto, most)
        return batch.to_json() if any(stretch.messages for stretch in batch.stretches.values()) else start

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

    # ---- what is read

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TopicPartition]:
        """Raises BadOffset."""
        return [] if start == end else partitions_of(TopicOffset.of_json(end), self._options, self._columns)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicPartition)
        return read_stretch(partition)
