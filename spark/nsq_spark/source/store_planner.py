"""Says which messages a stream reads of stores of nsqd, without asking any nsqd.

A store knows the numbers of all its messages, so positions have them, and the ids too: a query that reads on from nsqds uses
the same offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from pyspark.sql.datasource import InputPartition

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.splits import ArchiveError, FileInfo, Names, Numbers, Requested, Span
from nsq_spark.archive.store_logs import StoredLog
from nsq_spark.source.archived_files import chunks_in
from nsq_spark.source.batch_reader import ArchivePartition, tasks_of
from nsq_spark.source.live_options import (
    EARLIEST,
    LATEST,
    Counts,
    LiveOptions,
    LogKey,
    Position,
    Positions,
    TopicOffset,
    offset_in,
    quotas,
)
from nsq_spark.source.nsqds import Answers, id_before, report_loss, with_retries
from nsq_spark.source.options import ReadOptions
from nsq_spark.source.planner import Batch
from nsq_spark.source.store_history import ArchivedStores

_NO_NUMBERS: Numbers = np.zeros(0, np.int64)
_IDS = Requested(columns=frozenset(("id", "position")))


@dataclass(repr=False)
class NumbersPartition(ArchivePartition):
    """Messages with numbers from the first up to the second of a span, by file."""

    spans: Mapping[str, Span] = field(default_factory=dict)

    def chooser(self) -> Callable[[Chunk], Chunk]:
        def chosen(chunk: Chunk) -> Chunk:
            low, high = self.spans[chunk.file]
            return chunk.filter((chunk.positions >= low) & (chunk.positions < high))

        return chosen


@dataclass
class _Log:
    """The files of a log in a store, in order. Numbers may be missing between them."""

    files: list[StoredLog]

    @property
    def epoch(self) -> int | None:
        epochs = self.files[0].epochs
        if epochs:
            return epochs[0].number
        return None

    def is_of(self, epoch: int | None) -> bool:
        """True if the epoch is one of this log, or not known."""
        epochs = self.files[0].epochs
        return epoch is None or not epochs or epoch in dict(epochs)

    @property
    def end_seq(self) -> int:
        return self.files[-1].part.end_seq

    def count(self, low: int, high: int) -> int:
        """Return how many numbers from one up to another there are."""
        found = 0
        for _, part, *_ in self.files:
            found += max(0, min(high, part.end_seq) - max(low, part.first_seq))
        return found

    def behind(self, low: int, count: int) -> int:
        """Return the number behind the first `count` messages from a number on."""
        for _, part, *_ in self.files:
            begin = max(low, part.first_seq)
            if begin >= part.end_seq:
                continue
            if count <= part.end_seq - begin:
                return begin + count
            count -= part.end_seq - begin
        return self.end_seq


class StorePlanner:
    """Plans a stream of stores. Its methods raise ArchiveError, and LostMessages among them.

    history, has_asked  as of `Planner`: it needs no answers of nsqds
    """

    history = None
    has_asked = True

    def __init__(self, options: LiveOptions, columns: Names) -> None:
        assert options.archive is not None
        self.options = options
        self._read: ReadOptions = options.archive
        self._stores = ArchivedStores(options.archive)
        self._columns = columns
        # The file that was read last, its numbers, and its ids.
        self._ids: tuple[FileInfo, Numbers, Numbers] | None = None
        self._is_fixed = False
        self._is_idle = False

    def retained(self, known: Positions | None = None, *, of_all: bool) -> Answers:
        """Read what is new. With `of_all` again and again, as a query for what is there now does, only the first time.

        Spark asks all the time. If there was nothing the last time, wait until a request is worth its price.
        """
        if of_all and self._is_fixed:
            return {}
        if self._is_idle:
            self._stores.wait()
        self._refresh()
        self._is_fixed = of_all
        return {}

    def _refresh(self) -> None:
        """Read what is new. A store that was read before may be away for a while; a path that never was one may be wrong."""
        if self._stores.are_read:
            with_retries(self._stores.refresh, self.options.give_up_after_s)
        else:
            self._stores.refresh()

    def missing_topics(self, there: Answers) -> str:
        """Return a sentence that names a requested topic which no store has; "" if there is none."""
        requested = set(self.options.requested.topics or ())
        missing = requested.difference(log.topic for log in self._logs({}))
        if not missing:
            return ""
        return f"nsq: there is no topic {min(missing)} in {', '.join(self._read.paths)}"

    def beginning(self, there: Answers) -> TopicOffset:
        logs = self._logs({})
        return TopicOffset({key: self._start(key, log) for key, log in logs.items()})

    def _start(self, key: LogKey, log: _Log) -> Position:
        one = offset_in(self.options.start, key)
        first_seq = log.files[0].part.first_seq
        if one == EARLIEST:
            return self._at(log, first_seq)
        if one == LATEST:
            return self._at(log, log.end_seq)
        assert isinstance(one, dict)
        if "time" in one:
            position = Position(id_before(one["time"]), None)
            return self._at(log, self._seq(log, position))
        low = Position(one.get("id"), one.get("seq"), log.epoch)
        if low.count is not None and low.count > log.end_seq:
            raise ArchiveError(
                f"nsq: option startingOffsets: the store has numbers of topic {key.topic} up to {log.end_seq}, not {low.count}"
            )
        if low.count is None and low.last_id < log.files[0].part.first_id - 1:
            report_loss(self.options, key, low, first_seq, is_most=True)
        elif low.count is not None:
            report_loss(self.options, key, low, first_seq - low.count)
        return self._at(log, max(first_seq, self._seq(log, low)))

    # ---- what comes next

    def batch(self, before: TopicOffset, there: Answers, target: Positions | None, most: int | None) -> Batch:
        """Return what the next batch reads: `most` messages or all."""
        logs = self._logs(before.ends)
        begins: Positions = {}
        waiting: Counts = {}
        for key, log in logs.items():
            low = before.ends.get(key)
            if low is not None and not self._continues(key, low, log):
                low = None
            if low is None:
                low = begins[key] = self._at(log, log.files[0].part.first_seq)
            seq = self._seq(log, low)
            waiting[key] = log.count(seq, log.end_seq)
            report_loss(self.options, key, low, log.end_seq - seq - waiting[key])
        taken = quotas(waiting, most)
        ends = dict(before.ends)
        for key, log in logs.items():
            low = begins.get(key) or before.ends[key]
            if taken[key]:
                seq = self._seq(log, low)
                ends[key] = self._at(log, log.behind(seq, taken[key]))
            else:
                ends[key] = low
        left = {key: count - taken[key] for key, count in waiting.items()}
        self._is_idle = not any(waiting.values())
        return Batch(TopicOffset(ends, begins), waiting, left)

    def _continues(self, key: LogKey, low: Position, log: _Log) -> bool:
        """True if a log has a position. Raises LostMessages if it is another log, or lost its end."""
        has_count = low.count is None or low.count <= log.end_seq
        is_same = has_count and log.is_of(low.epoch)
        report_loss(self.options, key, low, 0, is_another=not is_same)
        return is_same

    def partitions(self, start: TopicOffset, end: TopicOffset, there: Answers) -> list[InputPartition]:
        """Return what a batch reads. Raises LostMessages if a store does not have all of it any more."""
        self._refresh()
        logs = self._logs(end.ends)
        spans: dict[str, Span] = {}
        infos = []
        for key, high in end.ends.items():
            low = end.begins.get(key) or start.ends.get(key, Position())
            log = logs.get(key)
            if log is None or not self._continues(key, high, log):
                report_loss(self.options, key, low, high.seq - low.seq)
                continue
            first = self._seq(log, low)
            last = self._seq(log, high)
            report_loss(self.options, key, low, last - first - log.count(first, last))
            for info, part, *_ in log.files:
                if part.first_seq < last and part.end_seq > first:
                    spans[info.path] = first, last
                    infos.append(info)
        groups = tasks_of(infos, self._read)
        return [NumbersPartition(self._read, self._columns, group, spans) for group in groups]

    # ---- logs, and positions in them

    def _logs(self, known: Positions) -> dict[LogKey, _Log]:
        """Return the logs of all stores, under the names that a query knows them by: their nsqd may have another address."""
        found: dict[LogKey, _Log] = {}
        by_topic = groupby(self._stores.logs(), key=lambda one: (one.store, one.info.topic))
        for (store, topic), files in by_topic:
            log = _Log(list(files))
            key = LogKey(topic, log.files[0].info.nsqd)
            names = [other for other, low in known.items() if other.topic == topic and low.epoch == log.epoch]
            if log.epoch is not None:
                key = next(iter(names), key)
            if key in found:
                raise ArchiveError(f"nsq: two stores have topic {topic} of {key.nsqd}: one is {store}")
            found[key] = log
        return found

    def _seq(self, log: _Log, position: Position) -> int:
        """Return the number of messages of a log before a position."""
        if position.count is not None:
            return position.count
        for one in log.files:
            part = one.part
            if position.last_id < part.first_id:
                return part.first_seq
            if position.last_id < part.last_id:
                numbers, ids = self._ids_in(one)
                behind = numbers[ids > position.last_id]
                if len(behind):  # of a file that is cut, later messages may be in others
                    return int(behind[0])
        return log.end_seq

    def _at(self, log: _Log, seq: int) -> Position:
        """Return the position before the message with a number, and behind the one before."""
        before = log.files[0].part.first_id - 1
        for one in log.files:
            part = one.part
            if seq <= part.first_seq:
                break
            if seq >= part.end_seq and not part.is_cut:
                before = part.last_id
                continue
            numbers, ids = self._ids_in(one)
            earlier = ids[numbers < seq]
            if len(earlier):
                before = int(earlier[-1])
        return Position(before, seq, log.epoch)

    def _ids_in(self, one: StoredLog) -> tuple[Numbers, Numbers]:
        """Return the numbers and the ids of the messages in a file, which is read for that."""
        if self._ids is None or self._ids[0] != one.info:
            numbers = [_NO_NUMBERS]
            ids = [_NO_NUMBERS]
            for chunk in chunks_in([one.info], self._read, _IDS):
                numbers.append(chunk.positions)
                ids.append(chunk.raw_ids.astype(np.int64))
            self._ids = one.info, np.concatenate(numbers), np.concatenate(ids)
        return self._ids[1:]
