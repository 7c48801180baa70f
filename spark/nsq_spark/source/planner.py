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

from nsq_spark.archive.sidecars import NsqdPart
from nsq_spark.archive.splits import ArchiveError, Names, Span
from nsq_spark.source.history import History, Source, Stretch
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
from nsq_spark.source.nsqds import (
    Answers,
    LiveTopics,
    Refused,
    Retained,
    id_before,
    report_loss,
    with_retries,
)

_log = logging.getLogger("nsqd_py.spark")
_by_id = attrgetter("last_id")
_by_id_and_number = attrgetter("last_id", "seq")
_UNREAD = (
    "nsq: the archive has messages of topic %s of nsqd %s, which is gone, and which the query has not read under this name; no "
    "manifest says of which log they are, so it does not read them"
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


class Planner:
    """Plans a query. Its methods raise ArchiveError, and LostMessages among them.

    waits  True if the archive and its topics need not be there yet
    """

    def __init__(self, options: LiveOptions, columns: Names, *, waits: bool = False) -> None:
        self.options = options
        self.topics = LiveTopics(options)
        self.history: History | None = None
        if options.archive:
            self.history = History(options.archive, self._owners, options.remembered_at, waits=waits)
        self._columns = columns
        self._there: Answers = {}
        self._now: Answers = {}  # to the last question
        self._is_of_all = False
        self._may_be_gone: set[LogKey] = set()
        self._gone: set[LogKey] = set()
        self._unread: set[LogKey] = set()
        self._epochs: dict[tuple[str, int | None], LogKey] = {}
        self._incomplete: set[LogKey] = set()  # archives of these lack messages, as of the last check
        self._reported: dict[LogKey, tuple[Position, int]] = {}  # with failOnDataLoss=false, each loss once

    @property
    def has_asked(self) -> bool:
        """True if nsqds have said which logs they have."""
        return bool(self._there)

    def retained(self, known: Positions | None = None, *, of_all: bool) -> Answers:
        """Return what each log keeps; see `LiveTopics.retained`."""
        found = self.topics.retained(known or {}, of_all=of_all)
        for log, retained in found.items():
            before = self._there.get(log)
            if self.history is None or (before and before.end.epoch == retained.end.epoch):
                continue
            self.history.forget()  # the archive may have more of a topic that was deleted since then
            if before:
                _log.warning(
                    "nsq: topic %s on %s was deleted and created again: reading on in the new one", *log
                )
        for log, retained in found.items():
            self._forget_other_names(log, retained)
        if self.history and not self._now.keys() <= found.keys() | self.topics.silent:
            self.history.forget()  # of a topic that was deleted since then, too
        self._there |= found
        self._now = dict(found)
        self._is_of_all = of_all
        self._know({log: retained.end for log, retained in found.items()})
        return found

    def _forget_other_names(self, log: LogKey, retained: Retained) -> None:
        for other, before in list(self._there.items()):
            if other.topic == log.topic and before.end.epoch == retained.end.epoch:
                del self._there[other]

    def missing_topics(self, there: Iterable[LogKey]) -> str:
        """Return a sentence that names a requested topic which neither an nsqd nor the archive has; "" if there is none."""
        options = self.options
        where = [*options.nsqds, *options.lookupds]
        missing = set(options.requested.topics or ()).difference(log.topic for log in there)
        if options.archive:
            where += options.archive.paths
        if missing and self.history:
            missing.difference_update(log.topic for log in self.history.logs())
        return f"nsq: there is no topic {min(missing)} in {', '.join(where)}" if missing else ""

    # ---- where a query begins and ends

    def beginning(self, there: Answers) -> TopicOffset:
        offset = self.options.start
        self.topics.check_named("startingOffsets", offset, there)
        begins = {log: self._beginning_of(log, retained) for log, retained in there.items()}
        if self.history is None or offset == LATEST:
            return TopicOffset(begins)
        self.history.forget()
        self._archived(begins, there)  # an archive that is not there yet: its logs join later
        for log, stretches in self.history.logs().items():
            if log not in there:
                first = stretches[0].beginning
                begins[log] = max(first, _at_time(offset, first), key=_by_id)
                if begins[log] == first and first.count:
                    _log.warning(_BEGINS_LATER, "archive", *log, first.count)
        return TopicOffset(begins)

    def _beginning_of(self, log: LogKey, retained: Retained) -> Position:
        option = "startingOffsets"
        one = offset_in(self.options.start, log)
        if self.history and one == EARLIEST:
            return self._earliest(log, retained)
        low = self.topics.position(option, one, log, retained)
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
        """Return the position behind an id. Report messages that the log may have dropped there; it does not say how many.

        Raises LostMessages.
        """
        answer = self.topics.read(log, id=message_id)
        is_kept = answer.has_all_behind(message_id) or message_id == answer.end.last_id
        if not is_kept:
            before = Position(message_id, None, answer.end.epoch)
            report_loss(self.options, log, before, answer.earliest_seq, is_most=True)
        return answer.first

    def _warn_later(self, log: LogKey, time: dict[str, int]) -> None:
        answer = self.topics.read(log, **time)
        if answer.earliest_seq and answer.first.seq == answer.earliest_seq:
            _log.warning(_BEGINS_LATER, "log", *log, answer.earliest_seq)

    def _beginning_in_archive(
        self, log: LogKey, low: Position, retained: Retained, *, is_time: bool
    ) -> Position:
        """Return where to begin behind an id or a time that the log does not keep. Raises LostMessages."""
        first = self._archive.beginning(log)
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
                end = self._archive.end(log) or low
                high = min(end, _at_time(offset, end), key=_by_id)
            elif log in there and one != EARLIEST:
                high = self.topics.position(option, one, log, there[log])
                if high.count is None:  # it was dropped since then
                    there[log] = self.topics.read(log, seq=0)
                # The archive may have a topic that was deleted, and the new log has no id yet.
                if one == LATEST and self.history and there[log].is_empty:
                    high = max(high, self._archive.end(log) or high, key=_by_id)
            if low.is_before(high):
                ends[log] = high
        return TopicOffset(ends)

    def _earliest(self, log: LogKey, retained: Retained) -> Position:
        """Return the position before the earliest message that the archive or else the log has."""
        first = self._archive.beginning(log)
        if first is None or (retained.end.count and not first.is_before(retained.first)):
            return Position() if retained.first.count else retained.first
        if first.count:
            _log.warning(_BEGINS_LATER, "archive", log.topic, log.nsqd, first.count)
        return first

    # ---- what comes next

    def batch(self, before: TopicOffset, there: Answers, target: Positions | None, most: int | None) -> Batch:
        """Return what the next batch reads, `most` messages or all, of each log the archive first."""
        self._know(before.ends)
        if self.history:
            self.history.refresh()
        begins = self._begins(before, there)
        lows = {log: low for log, low in {**before.ends, **begins}.items() if log not in self.topics.silent}
        highs = self._archived(lows, there)
        complete = {log for log, high in highs.items() if high.count is not None} - self._incomplete
        ends = dict(before.ends)
        archived: Counts = {}
        waiting: Counts = {}
        for log, low in lows.items():
            begin = highs.get(log, low)
            archived[log] = self._archive.count(log, low, begin) if log in highs else 0
            ends[log] = self._stop(log, begin, there, target)
            waiting[log] = archived[log] + begin.messages_to(ends[log])
        taken = quotas(waiting, most)
        for log, low in lows.items():
            begin = highs.get(log, low)
            of_log = taken[log] - archived[log]
            if of_log < 0:
                ends[log] = self._archive.take(
                    log, low, begin.last_id, taken[log], is_complete=log in complete
                )
            elif taken[log] < waiting[log]:
                ends[log] = self.topics.read(log, seq=begin.seq + of_log).first if of_log else begin
        left = {log: count - taken[log] for log, count in waiting.items()}
        return Batch(
            TopicOffset(ends, {log: low for log, low in begins.items() if log in lows}), waiting, left
        )

    def _stop(self, log: LogKey, begin: Position, there: Answers, target: Positions | None) -> Position:
        """Return the position up to which a log is read: its end, or the end that it had when the query began."""
        stop = there[log].end if log in there else begin
        asked = stop if target is None else _target_in(target, log, stop.epoch) or begin
        if asked.epoch == stop.epoch and asked.is_before(stop):
            stop = asked
        return stop if begin.is_before(stop) else begin

    def _begins(self, before: TopicOffset, there: Answers) -> Positions:
        """Return the positions of logs in which the next batch does not begin where the last one ended."""
        found: Positions = {}
        for log, retained in there.items():
            low = before.ends.get(log)
            furthest = self._left(before, log, retained)
            if low is None and furthest is None:
                found[log] = self._joining(log, retained)
                continue
            if furthest is not None and furthest != low:
                low = found[log] = furthest
            assert low is not None
            # Of a checkpoint that a query with an archive wrote.
            if self.history is None and low.count is None and low.epoch in (None, retained.end.epoch):
                low = found[log] = self._check_kept(log, low.last_id)
            is_another = low.epoch is not None and retained.end.epoch != low.epoch
            is_cut = retained.end.epoch == low.epoch and retained.end.seq < low.seq
            if self.history is None:
                lost = retained.earliest_seq - low.seq
                report_loss(self.options, log, low, lost, is_another=is_another or is_cut)
                if is_another or is_cut or lost > 0:
                    found[log] = self.topics.read(log, seq=0).first
            elif is_cut:
                report_loss(self.options, log, low, 0, is_another=True)
                found[log] = replace(low, count=retained.end.count)
        return self._begins_of_archived(before, there) | found

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
            if self._is_unread(before, log, logs[log]):
                first = logs[log][0].beginning
                found[log] = max(first, _at_time(self.options.start, first), key=_by_id)
        return found

    def _is_unread(self, before: TopicOffset, log: LogKey, stretches: list[Stretch]) -> bool:
        """True if the query has not read a log under any name, and no nsqd has it any more."""
        kept = self._kept(log)
        if kept:
            return kept.is_empty and self._left(before, log, kept) is None
        if log not in self._gone:
            return False
        # A log that the query has read would have the name that it has in the offset, if its epoch is known.
        if any(one.epoch is not None for one in stretches):
            return True
        if log not in self._unread:
            _log.warning(_UNREAD, log.topic, log.nsqd)
            self._unread.add(log)
        return False

    def _left(self, before: TopicOffset, log: LogKey, retained: Retained) -> Position | None:
        """Return where the query left a log, under whatever name of its nsqd; None if it has not read it."""
        own = before.ends.get(log)
        epochs = {retained.end.epoch, *dict(retained.ended)}
        found = [
            position
            for other, position in before.ends.items()
            if other.topic == log.topic and position.epoch in epochs
        ]
        if found and own is not None and own.epoch is None:
            found.append(own)
        if own is None and not found and self.history:
            names = self.topics.names_of(log.nsqd)
            found = [
                position
                for other, position in before.ends.items()
                if other.topic == log.topic and other.nsqd in names
            ]
        return max(found, key=_by_id_and_number, default=own)

    def _joining(self, log: LogKey, retained: Retained) -> Position:
        """Return where a log begins that the query has not read: at its earliest message."""
        if self.history is None:
            return self.topics.read(log, seq=0).first
        return self._earliest(log, retained)

    # ---- the archive

    @property
    def _archive(self) -> History:
        assert self.history is not None
        return self.history

    def _archived(self, lows: Positions, there: Answers) -> Positions:
        """Return the positions up to which messages are read from the archive, which has all of them.

        In `lows`, positions that the log keeps get their numbers, and logs that need an archive which is not there yet are
        removed.
        """
        found: Positions = {}
        for log, low in lows.items():
            high = self._archived_up_to(log, low, there)
            if high is not None:
                found[log] = high
            # It is of a time to come.
            elif low.count is None and log in there and not there[log].first.is_before(low):
                lows[log] = there[log].first
        if found and self._archive.is_awaited():
            for log in found:
                del lows[log]
            return {}
        for log in found.keys() & self.topics.silent:  # its nsqd may know of more messages
            del lows[log], found[log]
        for log, high in list(found.items()):
            if log not in there and self._missing(log, lows[log], high):
                self._archive.forget()  # the archive may have more of it since it was listed, so it may end later
                high = self._archived_up_to(log, lows[log], there) or high
            self._check(log, lows[log], high)
            found[log] = high
            if log not in there:
                found[log] = replace(high, count=None)  # a file may have more of it later
        return found

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
            high = max(high, self.history.end(log) or high, key=_by_id)
        has_some = low.is_before(high)
        deleted = None if retained else self._kept(log)
        if deleted and deleted.is_empty:
            high = replace(deleted.end, message_id=high.last_id)
            has_some |= low.count is not None
        is_same = low.count is not None and (low.count, low.epoch) == (high.count, high.epoch)
        return high if has_some and not is_same else None

    def _check(self, log: LogKey, low: Position, high: Position) -> None:
        """Report messages between two positions that the archive does not have, after listing new files."""
        self._incomplete.discard(log)
        for _ in range(2):
            lost = self._missing(log, low, high)
            if not lost:
                return
            self._archive.forget()
        self._incomplete.add(log)
        if self._reported.get(log) != (low, lost):
            report_loss(self.options, log, low, lost)
            self._reported[log] = low, lost

    def _missing(self, log: LogKey, low: Position, high: Position) -> int:
        """Return how many messages between two positions the archive lacks, or may lack."""
        return self._archive.missing(log, low, high, self._kept(log), partial(self._position_at, log))

    def _kept(self, log: LogKey) -> Retained | None:
        """Return what a log keeps, or its end if it was deleted; None if it is gone, or if its nsqd does not answer, which is one
        of the silent ones then. Raises ArchiveError where all nsqds must answer.
        """
        if log in self._now or log in self._gone:
            return self._now.get(log)
        if log in self.topics.silent:
            return self._there.get(log)
        question = partial(self.topics.unlisted, log)
        try:
            retained = with_retries(question, self.options.give_up_after_s) if self._is_of_all else question()
        except ArchiveError as error:
            if log in self._may_be_gone:
                self._gone.add(log)
            elif self._is_of_all or isinstance(error, Refused):
                raise
            else:
                _log.warning("%s", error)
                self.topics.silent.add(log)
            return None
        if retained:
            self._now[log] = retained
        return retained

    def _position_at(self, log: LogKey, message_id: int) -> Position | None:
        """Return the position behind a message; None if the log does not keep that message."""
        retained = self._kept(log)
        if retained is None or log in self.topics.silent:
            return None
        if retained.is_empty or message_id <= retained.first.last_id:
            return None
        answer = self.topics.read(log, id=message_id)
        if answer.first.seq <= answer.earliest_seq:  # it was dropped since then
            return None
        return replace(answer.first, message_id=message_id)

    # ---- whose the messages in the archive are

    def _know(self, positions: Positions) -> None:
        self._epochs |= {(log.topic, position.epoch): log for log, position in positions.items()}

    def _owners(self, newest: list[tuple[LogKey, NsqdPart]]) -> dict[Source, LogKey]:
        """Return the log of each topic, nsqd and epoch in the archive, itself if it is gone. Raises ArchiveError if it may be
        down.
        """
        return with_retries(partial(self._owners_now, newest), self.options.give_up_after_s)

    def _owners_now(self, newest: list[tuple[LogKey, NsqdPart]]) -> dict[Source, LogKey]:
        nsqds, failures = self.topics.by_tcp_address()
        found: dict[Source, LogKey] = {}
        for name, part in newest:
            log = self._log_of_epoch(name.topic, part.epoch)
            if log is None and name.nsqd in nsqds:
                log = LogKey(name.topic, nsqds[name.nsqd])
            elif log is None:
                log = self._log_with(name.topic, part)
            if log is None and failures:
                raise failures[0]
            may_be_gone = bool(self.options.gone & {name.nsqd, "*"})
            if log is None and not may_be_gone:
                raise ArchiveError(
                    f"nsq: the archive has messages of topic {name.topic} of nsqd {name.nsqd}, which is not there; if it will "
                    "not return, name it in the option goneNsqds"
                )
            if log is None:
                self._gone.add(name)
            elif may_be_gone:
                self._may_be_gone.add(log)
            found[name, part.epoch] = log or name
        self._join_logs_of_gone(found)
        return found

    def _join_logs_of_gone(self, found: dict[Source, LogKey]) -> None:
        """Give all messages of an nsqd that is gone to the log that the query has read of it: messages whose epoch is not known,
        and those of earlier and later logs of the topic.
        """
        for name in self._gone:
            logs = {epoch: log for (other, epoch), log in found.items() if other == name}
            others = set(logs.values()) - {name}
            if len(others) != 1:
                continue
            (log,) = others
            for epoch, owner in logs.items():
                if owner == name and (epoch is None or log not in self._now):
                    found[name, epoch] = log

    def _log_of_epoch(self, topic: str, epoch: int | None) -> LogKey | None:
        """Return the log that has an epoch, or had it before its topic was deleted, whatever the address of its nsqd was."""
        if epoch is None:
            return None
        for log, retained in self._there.items():
            if log.topic == topic and epoch in (retained.end.epoch, *dict(retained.ended)):
                return log
        return self._epochs.get((topic, epoch))

    def _log_with(self, topic: str, part: NsqdPart) -> LogKey | None:
        """Return the log that has a message, under whatever name the archive knows its nsqd."""
        for log, retained in list(self._now.items()):
            if log.topic == topic and not retained.is_empty:
                before = self.topics.read(log, id=part.last_id - 1)
                if not before.is_empty and before.first.message_id == part.last_id - 1:
                    return log
        return None

    def _now_named(self, log: LogKey, high: Position) -> LogKey:
        """Return a log under the name that its nsqd has now."""
        for other, retained in self._there.items():
            if other.topic == log.topic and high.epoch == retained.end.epoch:
                return other
        return log

    # ---- what tasks read

    def partitions(self, start: TopicOffset, end: TopicOffset, there: Answers) -> list[InputPartition]:
        """Return what a batch reads; `there` has the logs of nsqds that answer. It is needed if there is an archive."""
        self._know(end.ends)
        bounds: dict[LogKey, Span] = {}
        ranges: dict[LogKey, tuple[Position, Position]] = {}
        for log, high in end.ends.items():
            low = end.begins.get(log) or start.ends.get(log, Position())
            if not low.is_before(high):
                continue
            log = self._now_named(log, high)
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
        found = self._archive.partitions(bounds, self._columns) if bounds else []
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
        self._kept(log)
        if log not in self.topics.silent or high.count is None:
            return False
        end = self.history.end(log)
        return end is None or end.is_before(high) or bool(self._missing(log, low, high))

    def archived(self, log: LogKey, low: Position, high: Position) -> list[InputPartition]:
        """Return what reads messages that a log has dropped since they were planned."""
        self._archive.forget()
        self._check(log, low, high)
        return self._archive.partitions({log: (low.last_id, high.last_id)}, self._columns)

    def _cut(self, log: LogKey, low: Position, high: Position, parts: int) -> list[tuple[Position, Position]]:
        """Return equal parts of a range, none of which is empty."""
        messages = low.messages_to(high)
        parts = 1 if low.count is None else max(1, min(parts, messages))
        inner = [
            self.topics.read(log, seq=low.seq + messages * part // parts).first for part in range(1, parts)
        ]
        return list(pairwise([low, *inner, high]))


def _target_in(target: Positions, log: LogKey, epoch: int | None) -> Position | None:
    """Return the end that a log had under whatever name of its nsqd."""
    same = [end for other, end in target.items() if other.topic == log.topic and end.epoch == epoch]
    return same[0] if same else target.get(log)


def _at_time(offset: Offset, otherwise: Position) -> Position:
    """Return the position before the first message of a time; another one if it is no time."""
    return Position(id_before(offset), None, None) if isinstance(offset, int) else otherwise
