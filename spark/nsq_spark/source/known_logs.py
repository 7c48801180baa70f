"""Which logs there are, at which nsqds, where a query is in them, and whose the messages in the archive are: an nsqd may have
several names, and other ones later, and a topic may be deleted and created again. The epoch of a log is what stays.

A log is one of these: *there*, its nsqd has answered; *silent*, its nsqd did not answer; *deleted*, its nsqd does not have the
topic any more; *gone*, its nsqd will not return, as the option `goneNsqds` says.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TypeAlias

from nsq_spark.archive.sidecars import NsqdPart
from nsq_spark.archive.splits import ArchiveError
from nsq_spark.source.live_options import LiveOptions, LogKey, Position, Positions
from nsq_spark.source.log_archive import LogArchive
from nsq_spark.source.nsqds import Answers, LiveTopics, Refused, Retained, with_retries

# A topic and nsqd as the archive names these, and the epoch of the log, if it is known.
Source: TypeAlias = tuple[LogKey, int | None]

_by_id_and_number = attrgetter("last_id", "seq")
_MAY_HAVE_MOVED = (
    "nsq: the checkpoint has no epoch of topic {topic} on {old}, which is not there, so it is not known if {new} is that nsqd at "
    "another address; if it is, begin with another checkpointLocation and startingOffsets='{offsets}', otherwise name {old} in "
    "the option goneNsqds"
)
_log = logging.getLogger("nsqd_py.spark")


class KnownLogs:
    """The logs of the requested topics. Methods raise ArchiveError.

    topics  asks nsqds
    gone    logs that are gone, by the names that the archive or the query has for them
    """

    def __init__(self, options: LiveOptions) -> None:
        self.topics = LiveTopics(options)
        self.gone: set[LogKey] = set()
        self._options = options
        self._now: Answers = {}  # to the last question
        self._last: Answers = {}  # of each log, also those that are silent now
        self._is_of_all = False
        self._may_be_gone: set[LogKey] = set()
        self._epochs: dict[tuple[str, int | None], LogKey] = {}
        self._recognized: dict[LogKey, LogKey] = {}  # see `recognize`

    @property
    def have_answered(self) -> bool:
        """True if nsqds have said which logs they have."""
        return bool(self._last)

    def ask(self, known: Positions, *, of_all: bool) -> tuple[Answers, bool]:
        """Return what each log keeps, as `LiveTopics.retained` does; and True if a log is new, or was deleted."""
        found = self.topics.retained(known, of_all=of_all)
        is_changed = not self._now.keys() <= found.keys() | self.topics.silent
        for log, retained in found.items():
            before = self._last.get(log)
            if before is None or before.end.epoch != retained.end.epoch:
                is_changed = True
            if before and before.end.epoch != retained.end.epoch and self._options.archive:
                _log.warning(
                    "nsq: topic %s on %s was deleted and created again: reading on in the new one", *log
                )
        for log, retained in found.items():
            self._forget_other_names(log, retained)
        self._last |= found
        self._now = dict(found)
        self._is_of_all = of_all
        self.learn({log: retained.end for log, retained in found.items()})
        return found, is_changed

    def _forget_other_names(self, log: LogKey, retained: Retained) -> None:
        for other, before in list(self._last.items()):
            if other.topic == log.topic and before.end.epoch == retained.end.epoch:
                del self._last[other]

    def learn(self, positions: Positions) -> None:
        """Remember which logs have the epochs of these positions."""
        known = {log: position.epoch for log, position in positions.items() if position.epoch is not None}
        self._epochs |= {(log.topic, epoch): log for log, epoch in known.items()}

    def kept(self, log: LogKey) -> Retained | None:
        """Return what a log keeps, or its end if it was deleted; None if it is gone, or if its nsqd does not answer, which is one
        of the silent ones then. Raises ArchiveError where all nsqds must answer.
        """
        if log in self._now or log in self.gone:
            return self._now.get(log)
        if log in self.topics.silent:
            return self._last.get(log)
        question = partial(self.topics.unlisted, log)
        try:
            if self._is_of_all:
                retained = with_retries(question, self._options.give_up_after_s)
            else:
                retained = question()
        except ArchiveError as error:
            if log in self._may_be_gone:
                self.gone.add(log)
            elif self._is_of_all or isinstance(error, Refused):
                raise
            else:
                _log.warning("%s", error)
                self.topics.silent.add(log)
            return None
        if retained:
            self._now[log] = retained
        return retained

    def position_at(self, log: LogKey, message_id: int) -> Position | None:
        """Return the position behind a message; None if the log does not keep that message."""
        retained = self.kept(log)
        if retained is None or retained.is_empty or log in self.topics.silent:
            return None
        if message_id <= retained.first.last_id:
            return None
        answer = self.topics.read(log, id=message_id)
        if answer.first.seq <= answer.earliest_seq:  # it was dropped since then
            return None
        return Position(message_id, answer.first.seq - answer.missing, answer.first.epoch)

    def with_epoch(self, topic: str, epoch: int | None) -> LogKey | None:
        """Return the log that has an epoch, or had it before its topic was deleted, whatever the address of its nsqd was."""
        return self.answering(topic, epoch) or self._epochs.get((topic, epoch))

    def answering(self, topic: str, epoch: int | None) -> LogKey | None:
        """Return the log of `with_epoch` if its nsqd has answered, under the name under which it did."""
        for log, retained in self._last.items():
            if epoch is not None and log.topic == topic and epoch in retained.epochs:
                return log
        return None

    # ---- where a query is

    def name_now(self, log: LogKey, position: Position) -> LogKey | None:
        """Return the log with a position of the query, under the name under which it has answered; None if it has not."""
        return self._recognized.get(log) or self.answering(log.topic, position.epoch)

    def is_elsewhere(self, log: LogKey, position: Position) -> bool:
        """True if a log has answered under another name of its nsqd, whoever has the address that the query knows."""
        return self.name_now(log, position) not in (None, log)

    def left(self, ends: Positions, log: LogKey, retained: Retained) -> Position | None:
        """Return where the query left a log, under whatever name of its nsqd; None if it has not read it."""
        own = ends.get(log)
        if own is not None and self.is_elsewhere(log, own):
            own = None
        found = [
            position
            for other, position in ends.items()
            if other.topic == log.topic and position.epoch in retained.epochs
        ]
        found += [ends[other] for other, now in self._recognized.items() if now == log]
        if found and own is not None and own.epoch is None:
            found.append(own)
        if own is None and not found and self._options.archive:
            names = self.topics.names_of(log.nsqd)
            found = [
                position
                for other, position in ends.items()
                if other.topic == log.topic and other.nsqd in names
            ]
        return max(found, key=_by_id_and_number, default=own)

    def recognize(self, ends: Positions, there: Answers, archive_of: Callable[[LogKey], LogArchive]) -> None:
        """Find out which logs without known epochs answer under another name: those with the last message that was read.

        Raises ArchiveError if another nsqd has the topic, and it is not known if it is the same one.
        """
        self._recognized = {}
        found: dict[LogKey, LogKey] = {}
        for log, position in ends.items():
            is_gone = bool(self._options.gone & {log.nsqd, "*"})
            if position.epoch is not None or log in there or log in self.topics.silent or is_gone:
                continue
            last_id = position.last_id
            new = [
                other
                for other, retained in there.items()
                if other.topic == log.topic and self.left(ends, other, retained) is None
            ]
            same = [other for other in new if self._is_left_at(other, last_id, archive_of(other))]
            if same:
                found[log] = same[0]
            elif new:
                offsets = json.dumps({log.topic: {new[0].nsqd: f"{last_id:016x}"}})
                raise ArchiveError(
                    _MAY_HAVE_MOVED.format(topic=log.topic, old=log.nsqd, new=new[0].nsqd, offsets=offsets)
                )
        self._recognized = found

    def _is_left_at(self, log: LogKey, last_id: int, archive: LogArchive) -> bool:
        """True if a log has a message, or begins behind its id."""
        begins = 0, archive.beginning.last_id if archive.beginning else 0
        return last_id in begins or self.topics.has(log, last_id) or archive.has(last_id)

    # ---- whose the messages in the archive are

    def owners(self, newest: list[tuple[LogKey, NsqdPart]]) -> dict[Source, LogKey]:
        """Return the log of each topic, nsqd and epoch in the archive, by its last messages; the name itself if it is gone.

        Raises ArchiveError if the nsqd may be down.
        """
        return with_retries(partial(self._owners_now, newest), self._options.give_up_after_s)

    def _owners_now(self, newest: list[tuple[LogKey, NsqdPart]]) -> dict[Source, LogKey]:
        nsqds, failures = self.topics.by_tcp_address()
        found: dict[Source, LogKey] = {}
        for name, part in newest:
            log = self.with_epoch(name.topic, part.epoch)
            if log is None and name.nsqd in nsqds:
                log = LogKey(name.topic, nsqds[name.nsqd])
            elif log is None:
                log = self._log_with(name.topic, part)
            if log is None and failures:
                raise failures[0]
            may_be_gone = bool(self._options.gone & {name.nsqd, "*"})
            if log is None and not may_be_gone:
                raise ArchiveError(
                    f"nsq: the archive has messages of topic {name.topic} of nsqd {name.nsqd}, which is not there; if it will "
                    "not return, name it in the option goneNsqds"
                )
            if log is None:
                self.gone.add(name)
            elif may_be_gone:
                self._may_be_gone.add(log)
            found[name, part.epoch] = log or name
        self._join_logs_of_gone(found)
        return found

    def _join_logs_of_gone(self, found: dict[Source, LogKey]) -> None:
        """Give all messages of an nsqd that is gone to the log that the query has read of it: messages whose epoch is not known,
        and those of earlier and later logs of the topic.
        """
        for name in self.gone:
            logs = {epoch: log for (other, epoch), log in found.items() if other == name}
            others = set(logs.values()) - {name}
            if len(others) != 1:
                continue
            (log,) = others
            for epoch, owner in logs.items():
                if owner == name and (epoch is None or log not in self._now):
                    found[name, epoch] = log

    def _log_with(self, topic: str, part: NsqdPart) -> LogKey | None:
        """Return the log that has a message, under whatever name the archive knows its nsqd."""
        for log, retained in list(self._now.items()):
            if log.topic == topic and not retained.is_empty and self.topics.has(log, part.last_id):
                return log
        return None
