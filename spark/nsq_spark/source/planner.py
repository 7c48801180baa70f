"""Says which messages a query reads of the logs of nsqds, and which of the archive (`nsq_spark.source.history` has the rule)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql.datasource import InputPartition

from nsq_spark.archive.sidecars import NsqdPart
from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source.history import History
from nsq_spark.source.live_options import (
    BEGINNING,
    EARLIEST,
    EARLIEST_SEQ,
    LATEST,
    LiveOptions,
    LogKey,
    Position,
    TopicOffset,
    shares,
)
from nsq_spark.source.nsqds import KEEP_LONGER, NOT_ARCHIVED, Kept, LiveTopics, id_before, patiently, report_loss

_log = logging.getLogger("nsqd_py.spark")


@dataclass(repr=False)
class TopicPartition(InputPartition):
    """Messages of a log between two places, and the columns to return."""

    log: LogKey
    low: Position
    high: Position
    columns: tuple[str, ...]
    options: LiveOptions


class Planner:
    """Plans a query. Its methods raise ArchiveError, and LostMessages among them.

    waits  True if the archive and its topics need not be there yet
    """

    def __init__(self, options: LiveOptions, columns: tuple[str, ...], *, waits: bool = False) -> None:
        self.options = options
        self.topics = LiveTopics(options)
        self.history: History | None = None
        if options.archive is not None:
            self.history = History(options.archive, self._owners, options.remembered_at, waits=waits)
        self._columns = columns
        self._there: Mapping[LogKey, Kept] = {}

    def kept(self, known: Iterable[LogKey] = (), *, of_all: bool) -> dict[LogKey, Kept]:
        found = self.topics.kept(known, of_all=of_all)
        self._there = {**self._there, **found}
        return found

    def missing_topics(self, there: Iterable[LogKey]) -> str:
        """Return a sentence that names a wanted topic which neither an nsqd nor the archive has; "" if there is none."""
        options, missing = self.options, set(self.options.wanted.topics or ()).difference(log.topic for log in there)
        if missing and self.history is not None:
            missing.difference_update(log.topic for log in self.history.logs())
        where = *options.nsqds, *options.lookupds, *(options.archive.paths if options.archive else ())
        return f"nsq: there is no topic {min(missing)} in {', '.join(where)}" if missing else ""

    # ---- where a query begins and ends

    def beginning(self, there: dict[LogKey, Kept]) -> TopicOffset:
        option, place, history = "startingOffsets", self.options.start, self.history
        self.topics.check_named(option, place, there)
        begins = {log: self._beginning_of(log, kept) for log, kept in there.items()}
        if history is None or place == LATEST:
            return TopicOffset(begins)
        history.forget()
        for log, low in list(begins.items()):
            high = self._archived_up_to(log, low, there)
            if high is not None and not history.logs() and not history.is_there:
                del begins[log]  # it joins when the archive is there
            elif high is not None:
                self._check(log, low, high)
        for log in history.logs():
            if log not in there and (first := history.beginning(log)) is not None:
                begins[log] = first
                if isinstance(place, int) and id_before(place) > first.last_id:
                    begins[log] = Position(id_before(place), None, None)
        return TopicOffset(begins)

    def _beginning_of(self, log: LogKey, kept: Kept) -> Position:
        option, place = "startingOffsets", self.options.start
        one = place.get(log, EARLIEST_SEQ) if isinstance(place, Mapping) else place
        if self.history is not None and one in (EARLIEST, EARLIEST_SEQ):
            return self._earliest(log, kept)
        low = self.topics.place(option, place, log, kept)
        if isinstance(place, Mapping) and isinstance(one, int) and 0 <= one < low.seq:
            if self.history is not None:
                raise ArchiveError(
                    f"nsq: option {option}: {log.nsqd} does not keep number {one} of topic {log.topic} any more, and the "
                    "archive has no numbers: give the id of the message before, as text, or a time"
                )
            self._report_loss(log, Position(None, one, low.epoch), low.seq - one)
        return low

    def ending(self, start: TopicOffset, there: dict[LogKey, Kept]) -> TopicOffset:
        """Return what a table reads from its beginning on."""
        option, place, ends = "endingOffsets", self.options.end, {}
        self.topics.check_named(option, place, there)
        for log, low in start.ends.items():
            high: Position | None = None
            one = place.get(log, EARLIEST_SEQ) if isinstance(place, Mapping) else place
            if log in there and one not in (EARLIEST, EARLIEST_SEQ):
                high = self.topics.place(option, place, log, there[log])
                if high.count is None:  # it was dropped since then
                    there[log] = self.topics.read(log, seq=0)
            elif log not in there and self.history is not None and place != EARLIEST:
                high = self.history.end(log)
                if isinstance(place, int) and high is not None and id_before(place) < high.last_id:
                    high = Position(id_before(place), None, None)
            ends[log] = high if high is not None and low.is_before(high) else low
        return TopicOffset(ends)

    def _earliest(self, log: LogKey, kept: Kept) -> Position:
        """Return the place before the earliest message that the archive or else the log has."""
        assert self.history is not None
        first = self.history.beginning(log)
        if first is None or not first.is_before(kept.first):
            return BEGINNING if kept.first.count else kept.first
        if first.count:
            _log.warning(
                "nsq: the archive of topic %s of %s begins later than the topic: it does not have the first %d messages",
                log.topic,
                log.nsqd,
                first.count,
            )
        return first

    # ---- what comes next

    def batch(
        self, before: TopicOffset, there: dict[LogKey, Kept], target: Mapping[LogKey, Position] | None, most: int | None
    ) -> tuple[TopicOffset, int]:
        """Return what the next batch reads, `most` messages or all, the archive first; and about how many there are."""
        begins = self._begins(before, there)
        lows = {**before.ends, **begins}
        ends, history = dict(lows), self.history
        highs = {log: high for log, low in lows.items() if (high := self._archived_up_to(log, low, there)) is not None}
        if highs and history is not None and not history.logs() and not history.is_there:
            highs, lows = {}, {log: low for log, low in lows.items() if log not in highs}
            begins = {log: low for log, low in begins.items() if log in lows}
            ends = {log: low for log, low in ends.items() if log in lows or log in before.ends}
        for log, high in highs.items():
            self._check(log, lows[log], high)
        lows |= {log: there[log].first for log, low in lows.items() if low.count is None and log in there and log not in highs}
        old = {log: history.count(log, lows[log].last_id, high.last_id) for log, high in highs.items() if history}
        stops = {log: kept.end for log, kept in there.items() if log in lows}
        if target is not None:
            stops = {log: _earlier(target[log], end) for log, end in stops.items() if log in target}
        bases = {log: (highs[log] if log in highs else lows[log]).count or 0 for log in stops}
        new = {log: max(0, stop.seq - bases[log]) for log, stop in stops.items()}
        for log, count in shares(old, most).items():
            high = highs[log]
            if history is not None and count < old[log]:
                ends[log] = history.take(log, lows[log], high.last_id, count)
            elif lows[log].is_before(high) and (old[log] or new.get(log)):
                ends[log] = high
            most = None if most is None else most - count
        for log, count in shares(new, most).items():
            if count:
                is_all = count == new[log]
                ends[log] = stops[log] if is_all else self.topics.read(log, seq=bases[log] + count).first
        return TopicOffset(ends, begins), sum(old.values()) + sum(new.values())

    def _begins(self, before: TopicOffset, there: Mapping[LogKey, Kept]) -> dict[LogKey, Position]:
        """Return the places of logs in which the next batch does not begin where the last one ended."""
        found: dict[LogKey, Position] = {}
        for log, kept in there.items():
            low = before.ends.get(log)
            if low is None:
                found[log] = self._joining(before, log, kept)
                continue
            is_cut = kept.end.epoch == low.epoch and kept.end.seq < low.seq
            is_another = low.epoch is not None and kept.end.epoch != low.epoch
            if self.history is None:
                lost = kept.earliest_seq - low.seq
                self._report_loss(log, low, lost, is_another=is_another or is_cut)
                if is_another or is_cut or lost > 0:
                    found[log] = self.topics.read(log, seq=0).first
            elif is_cut:
                self._report_loss(log, low, 0, is_another=True)
                found[log] = replace(low, count=kept.end.count)
            elif is_another and log in self._there and self._there[log].end.epoch != kept.end.epoch:
                _log.warning("nsq: topic %s on %s was deleted and created again: reading on in the new one", *log)
        return found

    def _joining(self, before: TopicOffset, log: LogKey, kept: Kept) -> Position:
        """Return where a new log begins: where the query left it before its nsqd was gone, or at its earliest message."""
        if self.history is None:
            return self.topics.read(log, seq=0).first
        for name, nsqd in self.topics.by_tcp_address().items():
            if nsqd == log.nsqd and (left := before.ends.get(LogKey(log.topic, name))):
                return left
        return self._earliest(log, kept)

    # ---- the archive

    def _archived_up_to(self, log: LogKey, low: Position, there: dict[LogKey, Kept]) -> Position | None:
        """Return the place up to which messages behind `low` are read from the archive; None if the log has all of them."""
        kept = there.get(log)
        if self.history is None:
            return None
        if kept is None:
            end = self.history.end(log)
            return end if end is not None and low.is_before(end) else None
        if low.count is None:  # of what the log keeps by now, the first message behind it
            there[log] = kept = self.topics.read(log, id=low.last_id)
            if kept.first.seq > kept.earliest_seq:
                return None
        if low.epoch == kept.end.epoch and low.count is not None and low.count >= kept.first.seq:
            return None
        if kept.is_empty:  # all that is elsewhere is older
            end = self.history.end(log)
            high = max(kept.end, end or kept.end, key=lambda place: place.last_id)
            return high if kept.end.count or low.is_before(high) else None
        return kept.first if low.is_before(kept.first) else None

    def _check(self, log: LogKey, low: Position, high: Position) -> None:
        """Report messages between two places that the archive does not have, after looking for new files."""
        assert self.history is not None
        for _ in range(2):
            lost = self.history.missing(log, low, high, partial(self._count_at, log))
            if not lost:
                return
            self.history.forget()
        self._report_loss(log, low, lost)

    def _count_at(self, log: LogKey, message_id: int) -> int | None:
        """Return how many messages a log has up to an id; None if it does not keep that message."""
        kept = self._there.get(log)
        if kept is None or kept.is_empty or message_id <= kept.first.last_id:
            return None
        answer = self.topics.read(log, id=message_id)
        return answer.first.count if answer.first.seq > answer.earliest_seq else None  # it may have been dropped by now

    def _report_loss(self, log: LogKey, place: Position, lost: int, *, is_another: bool = False) -> None:
        remedy = NOT_ARCHIVED if self.history else KEEP_LONGER
        report_loss(log, place, lost, fails=self.options.fails_on_loss, is_another=is_another, remedy=remedy)

    # ---- whose the messages in the archive are

    def _owners(self, newest: Mapping[LogKey, NsqdPart]) -> dict[LogKey, LogKey]:
        """Return the log of each topic and nsqd in the archive, itself if it is gone. Raises ArchiveError if it may be down."""
        return patiently(partial(self._owners_now, newest), self.options.give_up_after_s)

    def _owners_now(self, newest: Mapping[LogKey, NsqdPart]) -> dict[LogKey, LogKey]:
        nsqds, found, gone = self.topics.by_tcp_address(), {}, self.options.gone
        for name, part in newest.items():
            nsqd = nsqds.get(name.nsqd) or self._nsqd_with(name.topic, part)
            if nsqd is None and not gone & {name.nsqd, "*"}:
                raise ArchiveError(
                    f"nsq: the archive has messages of topic {name.topic} of nsqd {name.nsqd}, which is not there; if it will "
                    "not return, name it in the option goneNsqds"
                )
            found[name] = LogKey(name.topic, nsqd or name.nsqd)
        return found

    def _nsqd_with(self, topic: str, part: NsqdPart) -> str | None:
        """Return the nsqd whose log has a message, under whatever name the archive knows it."""
        for log, kept in self._there.items():
            if log.topic != topic:
                continue
            before = self.topics.read(log, id=part.last_id - 1)
            if part.epoch == kept.end.epoch or (not before.is_empty and before.first.message_id == part.last_id - 1):
                return log.nsqd
        return None

    # ---- what tasks read

    def partitions(self, start: TopicOffset, end: TopicOffset, there: dict[LogKey, Kept]) -> list[InputPartition]:
        """Return what a batch reads; `there` has the logs of nsqds that answer, if there is an archive."""
        bounds: dict[LogKey, tuple[int, int]] = {}
        ranges: dict[LogKey, tuple[Position, Position]] = {}
        for log, high in end.ends.items():
            low = end.begins.get(log) or start.ends.get(log, BEGINNING)
            if not low.is_before(high):
                continue
            if log not in self.topics.silent and (archived := self._archived_up_to(log, low, there)) is not None:
                archived = high if high.is_before(archived) else archived
                self._check(log, low, archived)
                bounds[log] = low.last_id, archived.last_id
                low = archived
            elif low.count is None and log in there:
                low = there[log].first
            if low.is_before(high):
                ranges[log] = low, high
        each = -(-self.options.least_partitions // max(1, len(ranges)))
        logs = [
            TopicPartition(log, low, high, self._columns, self.options)
            for log, whole in ranges.items()
            for low, high in self._cut(log, *whole, each)
        ]
        return [*(self.history.partitions(bounds, self._columns) if self.history is not None else ()), *logs]

    def archived(self, log: LogKey, low: Position, high: Position) -> list[InputPartition]:
        """Return what reads messages that a log has dropped since they were planned."""
        assert self.history is not None
        self.history.forget()
        self._check(log, low, high)
        return self.history.partitions({log: (low.last_id, high.last_id)}, self._columns)

    def _cut(self, log: LogKey, low: Position, high: Position, parts: int) -> list[tuple[Position, Position]]:
        """Return equal parts of a range, none of which is empty."""
        first, messages = low.seq, high.seq - low.seq
        parts = max(1, min(parts, messages))
        inner = [self.topics.read(log, seq=first + messages * part // parts).first for part in range(1, parts)]
        places = [low, *inner, high]
        return list(zip(places, places[1:], strict=False))


def _earlier(target: Position, end: Position) -> Position:
    """Return the place up to which a log is read: its end, or the end that it had when the query began."""
    return target if target.epoch == end.epoch and target.is_before(end) else end
