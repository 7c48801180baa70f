"""Topics as a table, and as a stream: what an archive and the logs of nsqds have. A task reads numbers of one log, or files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
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
from nsq_spark.archive.splits import ArchiveError, Compression, Damage, Format, Numbers, Split, Wanted
from nsq_spark.source.batch_reader import ArchivePartition, read_partition
from nsq_spark.source.history import END_OF_IDS, History
from nsq_spark.source.live_options import (
    EARLIEST,
    EARLIEST_SEQ,
    LATEST,
    IdRange,
    LiveOptions,
    LogKey,
    NumberRange,
    Place,
    TopicOffset,
    shares,
)
from nsq_spark.source.nsqds import (
    KEEP_LONGER,
    NOT_ARCHIVED,
    READ_AGAIN,
    Kept,
    LiveTopics,
    NoTopic,
    patiently,
    read,
    report_loss,
    tcp_address,
)
from nsqd_py.batch import TICK_BITS, TICK_SHIFT, TWEPOCH
from nsqd_py.diskqueue.records import PUBLISHED

_READ_BYTES = 8 * 1024 * 1024


@dataclass(repr=False)
class TopicPartition(InputPartition):
    """Messages of a log, and the columns to return."""

    log: LogKey
    numbers: NumberRange
    columns: tuple[str, ...]
    options: LiveOptions


class Planner:
    """Says what is read from which log, and what from the archive (`nsq_spark.source.history` has the rule).

    Its methods raise ArchiveError, and LostMessages among them.
    """

    def __init__(self, options: LiveOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.topics = LiveTopics(options)
        self.history = History(options.archive, self._owners) if options.archive is not None else None
        self._columns = columns
        self._there: Mapping[LogKey, Kept] = {}
        # What the logs kept before the archive was read: it has what they had dropped by then.
        self._as_of: Mapping[LogKey, Kept] = {}

    def kept(self, known: Iterable[LogKey] = (), *, of_all: bool) -> dict[LogKey, Kept]:
        found = self.topics.kept(known, of_all=of_all)
        self._there = {**self._there, **found}
        return found

    def check_topics(self, there: Iterable[LogKey]) -> None:
        """Raise ArchiveError if neither an nsqd nor the archive has a topic that is wanted by name."""
        options, missing = self.options, set(self.options.wanted.topics or ()).difference(log.topic for log in there)
        if missing and self.history is not None:
            missing.difference_update(log.topic for log in self.history.load())
        if missing:
            where = *options.nsqds, *options.lookupds, *(options.archive.paths if options.archive else ())
            raise ArchiveError(f"nsq: there is no topic {min(missing)} in {', '.join(where)}")

    # ---- where a query begins and ends

    def beginning(self, there: dict[LogKey, Kept]) -> TopicOffset:
        place, history = self.options.start, self.history
        seqs = self._seqs("startingOffsets", place, there)
        if history is None or place == LATEST:
            return TopicOffset({log: self._at(log, kept, seqs[log]) for log, kept in there.items()})
        history.forget()
        ranges, archived = {}, {}
        first_id = _first_id_at(place) if isinstance(place, int) else 0
        for log, kept in there.items():
            seq = self._in_archive(log, kept, place, seqs[log])
            earliest = kept.earliest_seq
            # From a time on, what is missing may be from before: that cannot be known, so all has to be there.
            needed = earliest - (0 if isinstance(place, int) and seq < earliest else seq)
            dropped = history.at_least(needed, log, 0, self._boundary(log, kept))
            self._report_loss(log, earliest - needed, needed - len(dropped))
            ranges[log] = self._at(log, kept, max(seq, earliest - len(dropped)) if seq < earliest else seq)
            older = dropped[: max(0, len(dropped) - earliest)]
            if len(older) and (isinstance(place, int) or _is_earliest(place, log)):
                archived[log] = IdRange(first_id, first_id, int(older[-1]) + 1)
        for log in history.load():
            if log not in there:
                archived[log] = IdRange(first_id, first_id, int(history.ids(log)[-1]) + 1)
        return TopicOffset(ranges, {log: ids for log, ids in archived.items() if ids.low < ids.until})

    def ending(self, start: TopicOffset, there: dict[LogKey, Kept]) -> TopicOffset:
        """Return what a table reads from its beginning on."""
        place, ranges = self.options.end, {}
        for log, seq in self._seqs("endingOffsets", place, there).items():
            begin = start.ranges[log]
            seq = self._in_archive(log, there[log], place, seq)
            ranges[log] = self.upto(log, begin, max(begin.low, min(seq, there[log].end_seq)))
        last_id = _first_id_at(place) if isinstance(place, int) else 0 if place == EARLIEST else END_OF_IDS
        archived = {log: ids._replace(high=max(ids.low, min(last_id, ids.until))) for log, ids in start.archived.items()}
        return TopicOffset(ranges, archived)

    def _seqs(self, option: str, place: Place, there: dict[LogKey, Kept]) -> dict[LogKey, int]:
        seqs = self.topics.seqs(option, place, there)
        if self.history is not None and any(kept.earliest_seq > self._there[log].earliest_seq for log, kept in there.items()):
            self.history.forget()  # what was dropped since may be in a file that is new
        self._there = {**self._there, **there}
        return seqs

    def _in_archive(self, log: LogKey, kept: Kept, place: Place, seq: int) -> int:
        """Return the number of a place which is the earliest that the log keeps, if the archive has earlier ones."""
        if seq != kept.earliest_seq or self.history is None:
            return seq
        if isinstance(place, int):
            dropped = self.history.ids(log, _first_id_at(place), self._boundary(log, kept))
            return max(0, kept.earliest_seq - len(dropped))
        return 0 if _is_earliest(place, log) else seq

    def upto(self, log: LogKey, start: NumberRange, high: int) -> NumberRange:
        """Return the messages from a place on."""
        if high == start.high or self.history is None or log not in self._there:
            return start._replace(high=high)
        return start._replace(high=high, next_id=self._id_at(log, self._there[log], high))

    def _at(self, log: LogKey, kept: Kept, seq: int) -> NumberRange:
        return self.upto(log, NumberRange(seq, -1, kept.epoch), seq)

    # ---- ids of numbers

    def _id_at(self, log: LogKey, kept: Kept, seq: int) -> int:
        """Return the id of a message, or one between the last message's and the next; 0 if it is not known."""
        if seq < kept.earliest_seq:
            dropped, end_seq = self._dropped(log, seq)
            return int(dropped[seq - end_seq]) if end_seq - seq <= len(dropped) else 0
        known = min(seq, kept.end_seq - 1)
        if known < kept.earliest_seq:
            return 0
        answer = self.topics.read(log, seq=known)
        return answer.first_id + seq - known if answer.first_seq == known else 0

    def _dropped(self, log: LogKey, seq: int) -> tuple[Numbers, int]:
        """Return the ids of messages that a log has dropped, number `seq` among them, and the number after the last."""
        assert self.history is not None
        for _ in range(2):
            self.history.load()
            kept = self._as_of.get(log)
            if kept is not None and kept.epoch == self._there[log].epoch and kept.earliest_seq > seq:
                dropped = self.history.ids(log, 0, self._boundary(log, kept))
                if kept.earliest_seq - seq <= len(dropped):
                    return dropped, kept.earliest_seq
            self.history.forget()  # there may be more by now
        return np.zeros(0, np.int64), self._there[log].earliest_seq

    def _boundary(self, log: LogKey, kept: Kept) -> int:
        """Return the id of the earliest message that is kept: those before were dropped."""
        if kept.earliest_seq < kept.end_seq:
            return kept.first_id
        if self.topics.read(log, seq=kept.end_seq).end_seq == kept.end_seq:
            return END_OF_IDS
        raise ArchiveError(f"nsq: topic {log.topic} on {log.nsqd} got its first messages right now: start again")

    # ---- whose the messages in the archive are

    def _owners(self, newest: Mapping[LogKey, int]) -> dict[LogKey, LogKey]:
        """Return the log of each topic and nsqd in the archive, itself if it is gone. Raises ArchiveError if it may be down."""
        return patiently(partial(self._owners_now, newest), self.options.give_up_after_s)

    def _owners_now(self, newest: Mapping[LogKey, int]) -> dict[LogKey, LogKey]:
        self._as_of = self._there
        nsqds, found, gone = self.topics.by_tcp_address(), {}, self.options.gone
        for name, newest_id in newest.items():
            nsqd = nsqds.get(name.nsqd) or self._nsqd_with(name.topic, newest_id)
            if nsqd is None and not gone & {name.nsqd, "*"}:
                raise ArchiveError(
                    f"nsq: the archive has messages of topic {name.topic} of nsqd {name.nsqd}, which is not there; if it will "
                    "not return, name it in the option goneNsqds"
                )
            found[name] = LogKey(name.topic, nsqd or name.nsqd)
        return found

    def _nsqd_with(self, topic: str, message_id: int) -> str | None:
        """Return the nsqd whose log has a message, under whatever name the archive knows it."""
        for log, kept in self._there.items():
            low, high = kept.earliest_seq, kept.end_seq
            while log.topic == topic and low < high:
                middle = (low + high) // 2
                answer = self.topics.read(log, seq=middle)
                if answer.first_seq == middle and answer.first_id == message_id:
                    return log.nsqd
                if answer.first_id < message_id:
                    low = middle + 1
                else:
                    high = middle
        return None

    def check_joining(self, before: TopicOffset, log: LogKey) -> None:
        """Raise ArchiveError if the nsqd of a new log was gone when the query began."""
        for name, nsqd in self.topics.by_tcp_address().items() if before.archived else ():
            if nsqd == log.nsqd and LogKey(log.topic, name) in before.archived:
                raise ArchiveError(f"nsq: nsqd {name} was gone, and is there again: begin with another checkpoint")

    # ---- what tasks read

    def partitions(self, start: TopicOffset, end: TopicOffset, there: Mapping[LogKey, Kept]) -> list[InputPartition]:
        """Return what a batch reads. Of messages that an nsqd of `there` does not keep, the archive has to have all."""
        bounds = {log: [(ids.low, ids.high)] for log, ids in end.archived.items() if ids.low < ids.high}
        ranges: dict[LogKey, NumberRange] = {}
        for log, part in end.ranges.items():
            kept = there.get(log)
            if part.messages and kept is not None and (kept.epoch != part.epoch or kept.earliest_seq > part.low):
                low = part.high if kept.epoch != part.epoch else min(part.high, kept.earliest_seq)
                first_id, last_id, count = self._archived(log, start.ranges.get(log), part._replace(high=low), part.next_id, kept)
                bounds.setdefault(log, []).append((first_id, last_id))
                self._report_loss(log, part.low, low - part.low - count)
                part = part._replace(low=low)
            if part.messages:
                ranges[log] = part
        each = -(-self.options.least_partitions // max(1, len(ranges)))
        logs = [TopicPartition(log, one, self._columns, self.options) for log, whole in ranges.items() for one in whole.cut(each)]
        return [*(self.history.partitions(bounds, self._columns) if self.history is not None else ()), *logs]

    def _archived(
        self, log: LogKey, before: NumberRange | None, part: NumberRange, last_id: int, kept: Kept
    ) -> tuple[int, int, int]:
        """Return the bounds of the ids of messages that were dropped, and how many of them the archive has."""
        if self.history is None:
            return 0, 0, 0
        first_id = before.next_id if before is not None and before.high == part.low else 0
        if kept.epoch == part.epoch:
            first_id = first_id or self._id_at(log, kept, part.low)
            last_id = (
                self._boundary(log, kept) if part.high == kept.earliest_seq else last_id or self._id_at(log, kept, part.high)
            )
        found = self.history.at_least(part.messages, log, first_id, last_id)
        found = found if first_id else found[-part.messages :]
        return int(found[0]) if len(found) else last_id, last_id, len(found)

    def _report_loss(self, log: LogKey, seq: int, lost: int) -> None:
        report_loss(log, seq, lost, fails=self.options.fails_on_loss, remedy=NOT_ARCHIVED if self.history else KEEP_LONGER)


def _is_earliest(place: Place, log: LogKey) -> bool:
    return place == EARLIEST or (isinstance(place, Mapping) and place.get(log, EARLIEST_SEQ) == EARLIEST_SEQ)


def _first_id_at(time_ns: int) -> int:
    """Return the first id that may be of this time; ids have units of 1.05 ms."""
    return max(0, (time_ns >> TICK_BITS) - TWEPOCH) << TICK_SHIFT


class LiveBatchReader(DataSourceReader):
    """`spark.read` with an option `nsqd` or `nsqlookupd`. Each query reads what is kept then."""

    def __init__(self, options: LiveOptions, columns: tuple[str, ...]) -> None:
        self._plan = Planner(options, columns)

    def partitions(self) -> list[InputPartition]:
        """Raises ArchiveError, LostMessages."""
        there = self._plan.kept(of_all=True)
        self._plan.check_topics(there)
        start = self._plan.beginning(there)
        return self._plan.partitions(start, self._plan.ending(start, there), there)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class LiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("nsq")` with an option `nsqd` or `nsqlookupd`. A partition is a log."""

    def __init__(self, options: LiveOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._plan = Planner(options, columns)
        self._target: dict[LogKey, int] | None = None
        self._known: set[LogKey] = set()
        self._ends: dict[LogKey, NumberRange] = {}
        self._read: dict[LogKey, NumberRange] = {}
        self._last_s = time.monotonic()

    def initialOffset(self) -> dict[str, Any]:
        """Raises ArchiveError."""
        return self._plan.beginning(self._plan.kept(of_all=True)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.most_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Raises ArchiveError."""
        self._target = {log: kept.end_seq for log, kept in self._plan.kept(of_all=True).items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raises ArchiveError, LostMessages, BadOffset."""
        before = TopicOffset.of_json(start)
        self._known |= set(before.ranges)
        there = self._plan.kept(self._known, of_all=self._target is not None)
        starts = self._starts(before, there)
        self._ends |= {log: kept.at(kept.end_seq) for log, kept in there.items()}
        self._read |= starts
        batch = self._next_batch(starts, before.ends.archived, there, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        if batch is None:
            return start
        self._last_s = time.monotonic()
        self._read |= batch.ends.ranges
        return batch.to_json()

    def _next_batch(
        self,
        starts: Mapping[LogKey, NumberRange],
        archived: Mapping[LogKey, IdRange],
        there: Mapping[LogKey, Kept],
        most: int | None,
    ) -> TopicOffset | None:
        """Return what the next batch reads: all, or `most` messages, of the archive first; None if it is not enough yet."""
        history, left = self._plan.history, most
        old = {log: history.ids(log, ids.low, ids.until) for log, ids in archived.items() if history and ids.low < ids.until}
        new = {log: max(0, self._end(log, there[log]) - start.low) if log in there else 0 for log, start in starts.items()}
        total = sum(new.values()) + sum(map(len, old.values()))
        is_late = time.monotonic() - self._last_s >= self._options.longest_wait_s
        if not total or (total < self._options.least_messages and self._target is None and not is_late):
            return None
        ids = dict(archived)
        for log, count in shares({log: len(found) for log, found in old.items()}, left).items():
            ids[log] = ids[log]._replace(high=int(old[log][count]) if count < len(old[log]) else ids[log].until)
            left = None if left is None else left - count
        taken = shares(new, left)
        return TopicOffset({log: self._plan.upto(log, start, start.low + taken[log]) for log, start in starts.items()}, ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the logs ended when their nsqds were last asked, and how far behind a query is; Spark shows it next to
        how far the query is.
        """
        lag: dict[str, dict[str, int]] = {}
        for log, end in self._ends.items():
            lag.setdefault(log.topic, {})[log.nsqd] = end.low - self._read.get(log, end).low
        return TopicOffset(self._ends).to_json() | {"lag": lag}

    def _starts(self, before: TopicOffset, there: Mapping[LogKey, Kept]) -> dict[LogKey, NumberRange]:
        """Return where the next batch begins: at a new log, with its earliest message."""
        starts, has_archive = dict(before.ends.ranges), self._plan.history is not None
        for log, kept in there.items():
            if log not in starts:
                self._plan.check_joining(before, log)
                starts[log] = kept.at(0 if has_archive else kept.earliest_seq)
            start = starts[log]
            is_another = kept.epoch != start.epoch or kept.end_seq < start.low
            lost = 0 if has_archive else kept.earliest_seq - start.low
            report_loss(log, start.low, lost, fails=self._options.fails_on_loss, is_another=is_another)
            if is_another or lost > 0:
                starts[log] = kept.at(kept.earliest_seq)
        return starts

    def _end(self, log: LogKey, kept: Kept) -> int:
        return kept.end_seq if self._target is None else min(kept.end_seq, self._target.get(log, 0))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raises ArchiveError, LostMessages, BadOffset."""
        if start == end:
            return []
        last = TopicOffset.of_json(end)
        there = {} if self._plan.history is None else self._plan.kept(last.ranges, of_all=False)
        return self._plan.partitions(TopicOffset.of_json(start), last, there)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


# ---- on executors


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, TopicPartition):
        yield from read_range(partition)
    elif isinstance(partition, ArchivePartition):  # Spark makes one of its own if there is nothing to read
        yield from read_partition(partition)


def read_range(part: TopicPartition) -> Iterator[pa.RecordBatch]:
    """Raises ArchiveError, LostMessages among them."""
    options, (topic, asked), names = part.options, part.log, list(part.columns)
    address = asked if "://" in asked else f"http://{asked}"
    nsqd = patiently(partial(tcp_address, asked, options.access), options.give_up_after_s) if "nsqd" in names else ""
    has_archive = options.archive is not None  # the next plan reads from it what was dropped after this one
    lost = partial(
        report_loss, part.log, fails=options.fails_on_loss or has_archive, remedy=READ_AGAIN if has_archive else KEEP_LONGER
    )
    seq, end, epoch, _ = part.numbers
    while seq < end:
        try:
            kept = patiently(partial(read, asked, topic, _READ_BYTES, options.access, seq=seq), options.give_up_after_s)
        except NoTopic:
            lost(seq, end - seq)
            return
        if kept.epoch != epoch:
            lost(seq, end - seq, is_another=True)
            return
        count = 0
        for chunk in _chunks(kept.data, f"{address}/topic/read?topic={topic}", topic):
            wanted = chunk.filter((chunk.positions >= seq) & (chunk.positions < end))
            count += wanted.count
            if has_archive and (wanted.raw_ids[1:] <= wanted.raw_ids[:-1]).any():
                raise ArchiveError(f"nsq: topic {topic} has dead letters, which keep their ids: read its log without an archive")
            if wanted.count:
                yield replace(wanted, nsqds=nsqd or None).arrow(names)
        following = min(kept.next_seq, end) if kept.next_seq > seq else end
        lost(seq, following - seq - count)
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
