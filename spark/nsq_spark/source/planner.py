"""Says which messages a query reads of the logs of nsqds, and which of the archive (`nsq_spark.source.history` has the rule)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from nsq_spark.archive.splits import ArchiveError, Names, Span
from nsq_spark.source.history import History
from nsq_spark.source.known_logs import KnownLogs
from nsq_spark.source.live_options import (
    EARLIEST,
    LATEST,
    Counts,
    LiveOptions,
    LogKey,
    Offset,
    Position,
    Positions,
    TopicOffset,
    offset_in,
    quotas,
)
from nsq_spark.source.log_archive import LogArchive
from nsq_spark.source.nsqds import Answers, LiveTopics, Retained, id_before, report_loss

_log = logging.getLogger("nsqd_py.spark")
_by_id = attrgetter("last_id")
_UNREAD = (
    "nsq: the archive has messages of topic %s of nsqd %s, which is gone, and which the query has not read under this name; no "
    "manifest says of which log they are, so it does not read them"
)
_WAITING = (
    "nsq: %d messages of topic %s on %s are not read: they are older than the earliest one that nsqd hands out, which keeps them "
    "for a channel that has not finished them (deferred ones)"
)
_LATER = (
    "; those of them that are archived later are in spark.read.format('nsq').load({paths}).where(\"{condition}\"): append them "
    "without the ids that the query has written"
)
_BEGINS_LATER = (
    "nsq: the %s of topic %s of %s begins later than the topic: it does not have the first %d messages"
)


@dataclass(repr=False)
class TopicPartition(InputPartition):
    """Messages of a log between two positions, and the columns to return."""

    log: LogKey
    low: Position
    high: Position
    columns: Names
    options: LiveOptions


class Batch(NamedTuple):
    """The contents of the next batch; about how many messages wait in each log, and how many of these it leaves."""

    offset: TopicOffset
    waiting: Counts
    left: Counts


class _Reach(NamedTuple):
    """The messages of a log behind `low`: the archive has those up to `handover`, and the nsqd those up to `end`.

    archived     about how many the archive has
    is_complete  none is missing in the archive, and it is known how many messages are before `handover`
    """

    low: Position
    handover: Position
    end: Position
    archived: int = 0
    is_complete: bool = True

    @property
    def messages(self) -> int:
        return self.archived + self.handover.messages_to(self.end)


class Planner:
    """Plans a query. Its methods raise ArchiveError, and LostMessages among them.

    waits  True if the archive and its topics need not be there yet
    """

    def __init__(self, options: LiveOptions, columns: Names, *, waits: bool = False) -> None:
        self.options = options
        self.logs = KnownLogs(options)
        self.history: History | None = None
        if options.archive:
            self.history = History(options.archive, self.logs.owners, options.remembered_at, waits=waits)
        self._columns = columns
        self._unread: set[LogKey] = set()
        self._reported: dict[LogKey, tuple[Position, int]] = {}  # with failOnDataLoss=false, each loss once

    @property
    def topics(self) -> LiveTopics:
        return self.logs.topics

    @property
    def has_asked(self) -> bool:
        """True if nsqds have said which logs they have."""
        return self.logs.have_answered

    def retained(self, known: Positions | None = None, *, of_all: bool) -> Answers:
        """Return what each log keeps; see `LiveTopics.retained`."""
        found, is_changed = self.logs.ask(known or {}, of_all=of_all)
        if self.history and is_changed:
            self.history.forget()  # the archive may have more of a topic that was deleted since then
        return found

    def missing_topics(self, there: Iterable[LogKey]) -> str:
        """Return a sentence that names a requested topic which neither an nsqd nor the archive has; "" if there is none."""
        options = self.options
        where = [*options.nsqds, *options.lookupds]
        missing = set(options.requested.topics or ()).difference(log.topic for log in there)
        if options.archive:
            where += options.archive.paths
        if missing and self.history:
            missing.difference_update(log.topic for log in self.history.logs())
        if missing:
            return f"nsq: there is no topic {min(missing)} in {', '.join(where)}"
        return ""

    # ---- where a query begins and ends

    def beginning(self, there: Answers) -> TopicOffset:
        offset = self.options.start
        self.topics.check_named("startingOffsets", offset, there)
        begins = {log: self._beginning_of(log, retained) for log, retained in there.items()}
        if self.history is None or offset == LATEST:
            return TopicOffset(begins)
        self.history.forget()
        reaches = {log: self._reach(log, low, there) for log, low in begins.items()}
        begins = {log: reach.low for log, reach in reaches.items() if reach}  # the others join later
        for log, archive in self.history.logs().items():
            begin = self._beginning_in(archive)
            if begin and log not in there:
                begins[log] = begin
                if begin.count:
                    _log.warning(_BEGINS_LATER, "archive", *log, begin.count)
        return TopicOffset(begins)

    def _beginning_in(self, archive: LogArchive) -> Position | None:
        """Return where the query begins in a log that only the archive has; None if that has no messages of it."""
        first = archive.beginning
        return first and max(first, _at_time(self.options.start, first), key=_by_id)

    def _beginning_of(self, log: LogKey, retained: Retained) -> Position:
        one = offset_in(self.options.start, log)
        if one == EARLIEST:
            return self._earliest(log, retained)
        low = self.topics.position("startingOffsets", one, log, retained)
        if not isinstance(one, dict):
            return low
        if "seq" in one:
            self._check_number(log, low, one["seq"])
        elif low.count is None:
            return self._beginning_in_archive(log, low, retained, is_time="time" in one)
        elif self.history is None and "id" in one:
            self._check_kept(log, one["id"])
        elif self.history is None:
            self._warn_later(log, one)
        return low

    def _check_number(self, log: LogKey, low: Position, asked: int) -> None:
        """Report messages from a number on that the log does not keep. Raises ArchiveError."""
        if asked >= low.seq:
            return
        if self.history:
            raise ArchiveError(
                f"nsq: option startingOffsets: {log.nsqd} does not keep number {asked} of topic {log.topic} any more, and the "
                "archive has no numbers: give the id of the message before, as text, or a time"
            )
        report_loss(self.options, log, Position(None, asked, low.epoch), low.seq - asked)

    def _check_kept(self, log: LogKey, message_id: int) -> Position:
        """Return the position behind an id. Report messages that the log may have dropped there.

        Raises LostMessages.
        """
        answer = self.topics.read(log, id=message_id)
        is_kept = answer.has_all_behind(message_id) or message_id == answer.end.last_id
        if not is_kept:
            before = Position(message_id, None, answer.end.epoch)
            lost = answer.missing or answer.earliest_seq
            report_loss(self.options, log, before, lost, is_most=not answer.missing)
        return answer.first

    def _warn_later(self, log: LogKey, time: dict[str, int]) -> None:
        answer = self.topics.read(log, **time)
        if answer.earliest_seq and answer.first.seq == answer.earliest_seq:
            _log.warning(_BEGINS_LATER, "log", *log, answer.earliest_seq)

    def _beginning_in_archive(
        self, log: LogKey, low: Position, retained: Retained, *, is_time: bool
    ) -> Position:
        """Return where to begin behind an id or a time that the log does not keep. Raises LostMessages."""
        first = self._archive.of(log).beginning
        if not low.is_before(first or retained.first) or not low.is_before(retained.first):
            return low
        if is_time or first is None or not first.count:
            return self._earliest(log, retained)
        report_loss(self.options, log, low, first.count, is_most=True)
        return first

    def ending(self, start: TopicOffset, there: Answers) -> TopicOffset:
        """Return what a table reads from its beginning on."""
        option = "endingOffsets"
        offset = self.options.end
        ends = dict(start.ends)
        self.topics.check_named(option, offset, there)
        for log, low in start.ends.items():
            one = offset_in(offset, log)
            high = low
            if log not in there and offset != EARLIEST:
                end = self._archive.of(log).end or low
                high = min(end, _at_time(offset, end), key=_by_id)
            elif log in there and one != EARLIEST:
                high = self.topics.position(option, one, log, there[log])
                if high.count is None:  # it was dropped since then
                    there[log] = self.topics.read(log, seq=0)
                # The archive may have a topic that was deleted, and the new log has no id yet.
                if one == LATEST and self.history and there[log].is_empty:
                    high = max(high, self._archive.of(log).end or high, key=_by_id)
            if low.is_before(high):
                ends[log] = high
        return TopicOffset(ends)

    def _earliest(self, log: LogKey, retained: Retained) -> Position:
        """Return the position before the earliest message that the archive or else the log has."""
        if self.history is None:
            earliest = self.topics.read(log, seq=0)
            if waiting := self.topics.waiting(log, earliest.earliest_seq):
                _log.warning(_WAITING, waiting, *log)
            return earliest.first
        first = self.history.of(log).beginning
        if first is None or (retained.end.count and not first.is_before(retained.first)):
            if retained.first.count:
                return Position()
            return retained.first
        if first.count:
            _log.warning(_BEGINS_LATER, "archive", log.topic, log.nsqd, first.count)
        return first

    # ---- what comes next

    def batch(self, before: TopicOffset, there: Answers, target: Positions | None, most: int | None) -> Batch:
        """Return what the next batch reads, `most` messages or all, of each log the archive first."""
        self.logs.learn(before.ends)
        if self.history:
            self.history.refresh()
            self.logs.recognize(before.ends, there, self.history.of)
        begins = self._begins(before, there)
        moved = {log for log, position in before.ends.items() if self.logs.is_elsewhere(log, position)}
        known = {log: position for log, position in before.ends.items() if log not in moved}
        reaches: dict[LogKey, _Reach] = {}
        for log, low in {**known, **begins}.items():
            if log in self.topics.silent:
                reach = None
            else:
                reach = self._reach(log, low, there)
            if reach:
                reaches[log] = reach._replace(end=self._stop(log, reach.handover, there, target))
        waiting = {log: reach.messages for log, reach in reaches.items()}
        taken = quotas(waiting, most)
        ends = {log: self._end_of_batch(log, reach, taken[log]) for log, reach in reaches.items()}
        left = {log: count - taken[log] for log, count in waiting.items()}
        begins = {log: reach.low for log, reach in reaches.items() if log in begins}
        # The name under which a log is read now may have to wait for the archive.
        renamed = {log for log in moved if self.logs.name_now(log, before.ends[log]) in ends}
        read = {log: position for log, position in before.ends.items() if log not in renamed}
        return Batch(TopicOffset(read | ends, begins), waiting, left)

    def _end_of_batch(self, log: LogKey, reach: _Reach, most: int) -> Position:
        """Return the position behind the first messages within reach."""
        of_log = most - reach.archived
        if of_log < 0:
            up_to = reach.handover.last_id
            return self._archive.of(log).take(reach.low, up_to, most, is_complete=reach.is_complete)
        if most == reach.messages:
            return reach.end
        if not of_log:
            return reach.handover
        return self.topics.read(log, seq=reach.handover.seq + of_log).first

    def _stop(self, log: LogKey, begin: Position, there: Answers, target: Positions | None) -> Position:
        """Return the position up to which a log is read: its end, or the end that it had when the query began."""
        stop = there[log].end if log in there else begin
        if target is None:
            asked = stop
        else:
            asked = _target_in(target, log, stop.epoch) or begin
        if asked.epoch == stop.epoch and asked.is_before(stop):
            stop = asked
        if begin.is_before(stop):
            return stop
        return begin

    def _begins(self, before: TopicOffset, there: Answers) -> Positions:
        """Return the positions of logs in which the next batch does not begin where the last one ended."""
        found = self._begins_of_archived(before, there)
        for log, retained in there.items():
            begin = self._begin(before, log, retained)
            if begin != before.ends.get(log):
                found[log] = begin
        return found

    def _begin(self, before: TopicOffset, log: LogKey, retained: Retained) -> Position:
        """Return where the next batch begins in a log that an nsqd has. Raises LostMessages."""
        low = self.logs.left(before.ends, log, retained)
        if low is None:
            return self._earliest(log, retained)
        end = retained.end
        is_cut = end.epoch == low.epoch and end.seq < low.seq
        if self.history:
            report_loss(self.options, log, low, 0, is_another=is_cut)
            if is_cut:
                return replace(low, count=end.count)
            return low
        if low.count is None and low.epoch in (
            None,
            end.epoch,
        ):  # a query with an archive wrote the checkpoint
            low = self._check_kept(log, low.last_id)
        is_another = is_cut or low.epoch not in (None, end.epoch)
        lost = retained.earliest_seq - low.seq
        report_loss(self.options, log, low, lost, is_another=is_another)
        if is_another or lost > 0:
            return self.topics.read(log, seq=0).first
        return low

    def _begins_of_archived(self, before: TopicOffset, there: Answers) -> Positions:
        """Return where logs begin that the query has not read, and that only the archive has: nsqds had the topic for a time, or
        are gone.
        """
        if self.history is None or self.options.start == LATEST:
            return {}
        try:
            logs = self.history.logs()
        except ArchiveError as error:  # the other logs may not need it
            _log.warning("%s", error)
            return {}
        found: Positions = {}
        for log in logs.keys() - before.ends.keys() - there.keys():
            begin = self._beginning_in(logs[log])
            if begin and self._is_unread(before, logs[log]):
                found[log] = begin
        return found

    def _is_unread(self, before: TopicOffset, archive: LogArchive) -> bool:
        """True if the query has not read a log under any name, and no nsqd has it any more."""
        log = archive.log
        kept = self.logs.kept(log)
        if kept:
            return kept.is_empty and self.logs.left(before.ends, log, kept) is None
        if log not in self.logs.gone:
            return False
        # A log that the query has read would have the name that it has in the offset, if its epoch is known.
        if any(one.epoch is not None for one in archive.stretches):
            return True
        if log not in self._unread:
            _log.warning(_UNREAD, log.topic, log.nsqd)
            self._unread.add(log)
        return False

    # ---- the archive

    @property
    def _archive(self) -> History:
        assert self.history is not None
        return self.history

    def _reach(self, log: LogKey, low: Position, there: Answers) -> _Reach | None:
        """Return what is there behind a position; None if that is not known yet: an nsqd does not answer, which may know of more
        messages, or the archive is not there yet. Raises LostMessages.
        """
        high = self._archived_up_to(log, low, there)
        if high is None:
            is_to_come = low.count is None and log in there and not there[log].first.is_before(low)
            low = there[log].first if is_to_come else low
            return _Reach(low, low, low)
        if self._archive.is_awaited() or log in self.topics.silent:
            return None
        if log not in there and self._missing(log, low, high):
            self._archive.forget()  # the archive may have more of it since it was listed, so it may end later
            high = self._archived_up_to(log, low, there) or high
        is_complete = self._check(log, low, high)
        if log not in there:
            high = replace(high, count=None)  # a file may have more of it later
        archived = self._archive.of(log).count(low, high)
        return _Reach(low, high, high, archived, is_complete and high.count is not None)

    def _archived_up_to(self, log: LogKey, low: Position, there: Answers) -> Position | None:
        """Return the position up to which messages behind `low` are read from the archive; None if the log has all of them.

        If it is not known how many messages are before `low`, `there` then has what the log keeps behind it.
        """
        if self.history is None:
            return None
        retained = there.get(log)
        if retained and low.count is None:
            there[log] = retained = self.topics.read(log, id=low.last_id)
            if retained.has_all_behind(low.last_id):
                return None
        high = retained.first if retained else low
        if retained is None or retained.is_empty:  # all that is elsewhere is older
            high = max(high, self.history.of(log).end or high, key=_by_id)
        has_some = low.is_before(high)
        deleted = None if retained else self.logs.kept(log)
        if deleted and deleted.is_empty:
            high = replace(deleted.end, message_id=high.last_id)
            has_some |= low.count is not None
        is_same = low.count is not None and (low.count, low.epoch) == (high.count, high.epoch)
        return high if has_some and not is_same else None

    def _check(self, log: LogKey, low: Position, high: Position) -> bool:
        """Report messages between two positions that the archive does not have, after listing new files; True if there are none.

        Raises LostMessages.
        """
        for _ in range(2):
            lost = self._missing(log, low, high)
            if not lost:
                return True
            self._archive.forget()
        if self._reported.get(log) != (low, lost):
            kept = self.logs.kept(log)
            waiting = self.topics.waiting(log, kept.earliest_seq) if kept else 0
            report_loss(self.options, log, low, lost, waiting=waiting, later=self._later(log, low, high))
            self._reported[log] = low, lost
        return False

    def _later(self, log: LogKey, low: Position, high: Position) -> str:
        """Return how to read what is archived later between two positions."""
        assert self.options.archive is not None
        condition = self._archive.condition(log, low.last_id, high.last_id)
        return _LATER.format(paths=list(self.options.archive.paths), condition=condition)

    def _missing(self, log: LogKey, low: Position, high: Position) -> int:
        """Return how many messages between two positions the archive lacks, or may lack."""
        kept = self.logs.kept(log)
        return self._archive.of(log).missing(low, high, kept, partial(self.logs.position_at, log))

    # ---- what tasks read

    def partitions(self, start: TopicOffset, end: TopicOffset, there: Answers) -> list[InputPartition]:
        """Return what a batch reads; `there` has the logs of nsqds that answer. It is needed if there is an archive."""
        self.logs.learn(end.ends)
        if self.history:
            self.logs.recognize(end.ends, there, self.history.of)
        bounds: dict[LogKey, Span] = {}
        ranges: dict[LogKey, tuple[Position, Position]] = {}
        for log, high in end.ends.items():
            low = end.begins.get(log) or start.ends.get(log, Position())
            if not low.is_before(high):
                continue
            log = self.logs.name_now(log, high) or self.logs.with_epoch(log.topic, high.epoch) or log
            archived = None if self._is_waited_for(log, low, high) else self._archived_up_to(log, low, there)
            if archived is not None and low.is_before(archived):
                archived = min(high, archived, key=_by_id)
                self._check(log, low, archived)
                bounds[log] = low.last_id, archived.last_id
                low = archived
            elif self.history and low.count is None and log in there:
                low = there[log].first
            if low.is_before(high):
                ranges[log] = low, high
        each = -(-self.options.least_partitions // max(1, len(ranges)))
        found = []
        if bounds:
            found = self._archive.partitions(bounds, self._columns)
        for log, whole in ranges.items():
            found += [
                TopicPartition(log, *part, self._columns, self.options)
                for part in self._cut(log, *whole, each)
            ]
        return found

    def _is_waited_for(self, log: LogKey, low: Position, high: Position) -> bool:
        """True if an nsqd that does not answer has messages which the archive lacks: the task waits for it."""
        if self.history is None:
            return False
        self.logs.kept(log)
        if log not in self.topics.silent or high.count is None:
            return False
        end = self.history.of(log).end
        return end is None or end.is_before(high) or bool(self._missing(log, low, high))

    def archived(self, log: LogKey, low: Position, high: Position) -> list[InputPartition]:
        """Return what reads messages that a log has dropped since they were planned."""
        self._archive.forget()
        self._check(log, low, high)
        return self._archive.partitions({log: (low.last_id, high.last_id)}, self._columns)

    def _cut(self, log: LogKey, low: Position, high: Position, parts: int) -> list[tuple[Position, Position]]:
        """Return equal parts of a range, none of which is empty."""
        messages = low.messages_to(high)
        if low.count is None:
            parts = 1
        else:
            parts = max(1, min(parts, messages))
        inner = [
            self.topics.read(log, seq=low.seq + messages * part // parts).first for part in range(1, parts)
        ]
        return list(pairwise([low, *inner, high]))


def _target_in(target: Positions, log: LogKey, epoch: int | None) -> Position | None:
    """Return the end that a log had under whatever name of its nsqd."""
    same = [end for other, end in target.items() if other.topic == log.topic and end.epoch == epoch]
    if same:
        return same[0]
    return target.get(log)


def _at_time(offset: Offset, otherwise: Position) -> Position:
    """Return the position before the first message of a time; another one if it is no time."""
    if isinstance(offset, int):
        return Position(id_before(offset), None, None)
    return otherwise
