"""What Spark asks of a stream of a topic: where it begins, how far it goes, who reads what."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RecordHeader, decode_header
from spark.archive.errors import ArchiveError
from spark.source.live.kept import Kept, NoTopic, ends, read
from spark.source.live.offsets import Stretch, TopicOffset, next_batch
from spark.source.live.options import EARLIEST, LATEST, LiveOptions
from spark.source.live.places import nsqds_of
from spark.source.live.task import TopicPartition, read_stretch, tell_of_loss

_log = logging.getLogger("nsqd_py.spark")


class LiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("nsq")` with an option `nsqd` or `lookupd`. A partition is an nsqd."""

    def __init__(self, options: LiveOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._target: dict[str, int] | None = None
        self._known: set[str] = set()

    # ---- how far

    def initialOffset(self) -> dict[str, Any]:
        """Raises ArchiveError."""
        begins = {nsqd: self._begin(nsqd, kept) for nsqd, kept in self._asked().items()}
        return TopicOffset({nsqd: Stretch(seq, seq) for nsqd, seq in begins.items()}).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.most_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Raises ArchiveError."""
        self._target = {nsqd: kept.end_seq for nsqd, kept in self._asked().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raises ArchiveError, LostMessages, BadOffset."""
        before = TopicOffset.of_json(start)
        self._known |= set(before.positions)
        there = self._asked()
        positions = self._positions(before.positions, there)
        upto = {nsqd: self._end(nsqd, kept) for nsqd, kept in there.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        batch = next_batch(positions, upto, most)
        return batch.to_json() if any(stretch.messages for stretch in batch.stretches.values()) else start

    def _asked(self) -> dict[str, Kept]:
        """What each nsqd that has the topic says. One that is away is left for the next time; raises where all are."""
        found: dict[str, Kept] = {}
        failures: list[str] = []
        nsqds = nsqds_of(self._options, self._known)
        for nsqd in nsqds:
            try:
                found[nsqd] = ends(nsqd, self._options.topic)
            except NoTopic:
                continue
            except ArchiveError as error:
                _log.warning("%s", error)
                failures.append(str(error))
        if failures and len(failures) == len(nsqds):
            raise ArchiveError("; ".join(failures))
        return found

    def _positions(self, before: Mapping[str, int], there: Mapping[str, Kept]) -> dict[str, int]:
        """Where the next batch begins; an nsqd that is new, with what it has."""
        positions = dict(before)
        for nsqd, kept in there.items():
            position = positions.setdefault(nsqd, kept.earliest_seq)
            if kept.earliest_seq <= position <= kept.end_seq:
                continue
            is_another = position > kept.end_seq  # the topic was deleted, and made anew
            lost = 1 if is_another else kept.earliest_seq - position
            tell_of_loss(nsqd, self._options.topic, position, lost, fails=self._options.fails_on_loss)
            positions[nsqd] = kept.earliest_seq
        return positions

    def _end(self, nsqd: str, kept: Kept) -> int:
        return kept.end_seq if self._target is None else min(kept.end_seq, self._target.get(nsqd, 0))

    # ---- where to begin

    def _begin(self, nsqd: str, kept: Kept) -> int:
        start = self._options.start
        if start == EARLIEST:
            return kept.earliest_seq
        return kept.end_seq if start == LATEST else self._first_since(nsqd, int(start), kept)

    def _first_since(self, nsqd: str, time_ns: int, kept: Kept) -> int:
        """The first message published at a time or later. Halves what it may be, a record a question."""
        low, high = kept.earliest_seq, kept.end_seq
        while low < high:
            middle = (low + high) // 2
            record = self._record_at(nsqd, middle)
            if record is None or record.timestamp_ns >= time_ns:
                high = middle if record is None else max(low, min(middle, record.first_seq))
            else:
                low = record.end_seq
        return low

    def _record_at(self, nsqd: str, seq: int) -> RecordHeader | None:
        """The record that holds a number, or the first behind it; None where there is none."""
        answer = read(nsqd, self._options.topic, seq, 1)
        return decode_header(answer.data, FILE_HEADER_BYTES) if len(answer.data) > FILE_HEADER_BYTES else None

    # ---- what is read

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TopicPartition]:
        """Raises BadOffset."""
        if start == end:
            return []
        options = self._options
        return [
            TopicPartition(nsqd, options.topic, stretch.low, stretch.high, self._columns, options.fails_on_loss)
            for nsqd, stretch in TopicOffset.of_json(end).stretches.items()
            if stretch.messages
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicPartition)
        return read_stretch(partition)
