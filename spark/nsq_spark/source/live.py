"""Topics as a table, and as a stream: what an archive and the logs of nsqds have. A task reads a part of one log, or files."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nsq_spark.archive.chunk import Chunks, index_in_records
from nsq_spark.archive.files import RemoteFile
from nsq_spark.archive.formats.record_file import published_chunks
from nsq_spark.archive.formats.records import Walk
from nsq_spark.archive.splits import ArchiveError, Compression, Damage, Format, Names, Requested, Split
from nsq_spark.source.batch_reader import ArchivePartition, Rows, leave_out_of_collections, read_partition
from nsq_spark.source.live_options import (
    Counts,
    Document,
    LiveOptions,
    Position,
    Positions,
    TopicOffset,
    by_topic,
)
from nsq_spark.source.nsqds import NoTopic, read, report_loss, tcp_address, with_retries
from nsq_spark.source.planner import Planner, TopicPartition
from nsq_spark.source.store_planner import StorePlanner
from nsqd_py.diskqueue.records import PUBLISHED

_READ_BYTES = 8 * 1024 * 1024

_log = logging.getLogger("nsqd_py.spark")


class _TaskReader:
    """Reads partitions, on executors."""

    def read(self, partition: InputPartition) -> Rows:
        if isinstance(partition, TopicPartition):
            yield from read_range(partition)
        # Spark makes an empty one if there is nothing to read.
        elif isinstance(partition, ArchivePartition):
            yield from read_partition(partition)


class LiveBatchReader(_TaskReader, DataSourceReader):
    """`spark.read` with an option `nsqd` or `nsqlookupd`. Each query reads what is retained then."""

    def __init__(self, options: LiveOptions, columns: Names) -> None:
        self._plan = Planner(options, columns)

    def partitions(self) -> list[InputPartition]:
        """Raises ArchiveError, LostMessages."""
        there = self._plan.retained(of_all=True)
        if missing := self._plan.missing_topics(there):
            raise ArchiveError(missing)
        start = self._plan.beginning(there)
        return self._plan.partitions(start, self._plan.ending(start, there), there)


def _planner_of(options: LiveOptions, columns: Names) -> Planner | StorePlanner:
    """Return the planner of a stream: without an nsqd, one that reads stores."""
    if options.nsqds or options.lookupds:
        return Planner(options, columns, waits=True)
    return StorePlanner(options, columns)


class LiveReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("nsq")` with an option `nsqd` or `nsqlookupd`, or of a store of nsqd."""

    def __init__(self, options: LiveOptions, columns: Names) -> None:
        self._options = options
        self._plan = _planner_of(options, columns)
        self._target: Positions | None = None
        self._ends: Positions = {}
        self._lag: Counts = {}
        self._last_s = time.monotonic()

    def initialOffset(self) -> Document:
        """Raises ArchiveError."""
        there = self._plan.retained(of_all=True)
        if missing := self._plan.missing_topics(there):
            _log.warning("%s: waiting for it", missing)
        return self._plan.beginning(there).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.most_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Raises ArchiveError."""
        self._target = {log: retained.end for log, retained in self._plan.retained(of_all=True).items()}

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:
        """Raises ArchiveError, LostMessages, BadOffset."""
        options = self._options
        before = TopicOffset.of_json(start)
        there = self._plan.retained(before.ends, of_all=self._target is not None)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        batch = self._plan.batch(before, there, self._target, most)
        count = sum(batch.waiting.values())
        is_late = time.monotonic() - self._last_s >= options.longest_wait_s
        is_enough = self._target is not None or is_late or count >= options.least_messages
        is_next = count > 0 and is_enough and (batch.offset.ends != before.ends or bool(batch.offset.begins))
        self._ends |= {log: retained.end for log, retained in there.items()}
        self._lag |= batch.left if is_next else batch.waiting
        if not is_next:
            return start
        self._last_s = time.monotonic()
        return batch.offset.to_json()

    def reportLatestOffset(self) -> Document | None:
        """Return where the logs ended when their nsqds were last asked, and how far behind a query is; Spark shows it next to
        how far the query is.
        """
        return TopicOffset(self._ends).to_json() | {"lag": by_topic(self._lag)}

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        """Raises ArchiveError, LostMessages, BadOffset."""
        if start == end:
            return []
        last = TopicOffset.of_json(end)
        there = {}
        # Nsqds may have other addresses than when another process planned the batch.
        if self._plan.history or not self._plan.has_asked:
            there = self._plan.retained(last.ends, of_all=False)
        return self._plan.partitions(TopicOffset.of_json(start), last, there)


# ---- on executors


def read_range(part: TopicPartition) -> Rows:
    """Raises ArchiveError, LostMessages among them."""
    leave_out_of_collections()
    options = part.options
    topic, asked = part.log
    address = asked if "://" in asked else f"http://{asked}"
    url = f"{address}/topic/read?topic={topic}"
    nsqd = ""
    if "nsqd" in part.columns:
        nsqd = with_retries(partial(tcp_address, asked, options.access), options.give_up_after_s)
    position, high = part.low, part.high
    if high.count is None:
        raise ArchiveError(
            f"nsq: {asked} is not there, and the archive has only a part of its messages of topic {topic}"
        )
    while position.is_before(high):
        where = {"seq": position.seq} if position.message_id is None else {"id": position.message_id}
        try:
            retained = with_retries(
                partial(read, asked, topic, _READ_BYTES, options.access, **where), options.give_up_after_s
            )
        except NoTopic:
            yield from _not_retained(part, position, high)
            return
        if retained.end.epoch != high.epoch or retained.end.seq < high.seq:
            yield from _not_retained(part, position, high, is_another=True)
            return
        if position.count is None and retained.has_all_behind(position.last_id):
            position = retained.first
        # What is between was dropped since it was planned, or cannot be read.
        if retained.first.seq > position.seq:
            reached = retained.first if retained.first.is_before(high) else high
            if position.is_before(reached):
                yield from _not_retained(part, position, reached)
            position = reached
            continue
        following = position
        for chunk in _in_a_row(_chunks(retained.data, url, topic), position, high):
            yield replace(chunk, nsqds=nsqd or None).arrow(part.columns)
            last_id = None if position.message_id is None else int(chunk.raw_ids[-1])
            following = Position(last_id, int(chunk.positions[-1]) + 1, high.epoch)
        if following.seq == high.seq:
            return
        if following == position:
            raise ArchiveError(
                f"nsq: {asked} hands out nothing from number {position.seq} of topic {topic} on"
            )
        position = following


def _in_a_row(chunks: Chunks, low: Position, high: Position) -> Chunks:
    """Yield the messages between two positions, up to the first that is missing; nsqds of earlier versions pass over it."""
    seq = low.seq
    for chunk in chunks:
        requested = chunk.filter((chunk.positions >= seq) & (chunk.positions < high.seq))
        in_a_row = requested.filter(requested.positions == seq + np.arange(requested.count))
        if in_a_row.count:
            yield in_a_row
        if in_a_row.count < requested.count:
            return
        seq += in_a_row.count


def _not_retained(part: TopicPartition, low: Position, high: Position, *, is_another: bool = False) -> Rows:
    """Yield messages that a log does not have any more from the archive. Raises LostMessages if there is none."""
    options = part.options
    if options.archive is None:
        report_loss(options, part.log, low, high.seq - low.seq, is_another=is_another)
        return
    plan = Planner(options, part.columns)

    def planned() -> list[InputPartition]:
        plan.retained(of_all=False)
        return plan.archived(part.log, low, high)

    # Nsq-to-file may finish its file in that time.
    for archived in with_retries(planned, options.give_up_after_s):
        assert isinstance(archived, ArchivePartition)
        yield from read_partition(archived)


def _chunks(data: bytes, url: str, topic: str) -> Chunks:
    """Yield the messages of an answer, with sequence numbers for positions."""
    size = len(data)
    split = Split(url, Format.TOPIC_LOG, Compression.NONE, 0, size, topic, size, 0)
    requested = Requested()
    for records in Walk(RemoteFile(pa.BufferReader(data)), split, requested, Damage()).run():
        if (records.headers["kind"] != PUBLISHED).any():
            raise ArchiveError(f"{url} has records of another kind: of a later version of nsqd?")
        counts = records.headers["count"].astype(np.int64)
        numbers = np.repeat(records.headers["first_seq"].astype(np.int64), counts) + index_in_records(counts)
        for chunk in published_chunks(records, 0, len(records.offsets), split, requested):
            own, numbers = numbers[: chunk.count], numbers[chunk.count :]
            yield replace(chunk, positions=own)
