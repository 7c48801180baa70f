"""What an archive has of one log: its messages in order, and which are missing between two positions.

A *stretch* has the messages of a log in files whose ids overlap; no two stretches overlap. The archive may have a message twice,
since nsq-to-file writes at least once, and nsq-to-files that share a channel write files that overlap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from nsq_spark.archive.splits import FileInfo, Numbers
from nsq_spark.source.live_options import LogKey, Position
from nsq_spark.source.nsqds import END_OF_IDS, Retained

_NO_IDS: Numbers = np.zeros(0, np.int64)
_UNKNOWN = (
    "nsq: it is not known whether the archive has all messages of topic %s of %s, whose log is gone: nsq-to-file did not note "
    "how many there were"
)

_log = logging.getLogger("nsqd_py.spark")


class Stretch(NamedTuple):
    """Messages of a log in a row.

    messages   their number; a message that is there twice may count twice, unless `is_exact`
    first_seq  number of messages in the log before the first one, and the epoch of the log; None if not known
    files      that have them
    """

    first_id: int
    last_id: int
    messages: int
    is_exact: bool
    epoch: int | None
    first_seq: int | None
    files: frozenset[FileInfo]

    @property
    def beginning(self) -> Position:
        return Position(self.first_id - 1, self.first_seq, self.epoch)

    @property
    def end(self) -> Position:
        """The position behind the last message. Its count is not known: messages may be missing in between."""
        return Position(self.last_id, None, self.epoch)

    def joined(self, later: Stretch) -> Stretch:
        """Return this stretch with one that begins in it."""
        return self._replace(
            last_id=max(self.last_id, later.last_id),
            messages=self.messages + later.messages,
            is_exact=False,
            files=self.files | later.files,
        )


class LogArchive:
    """The messages of a log in an archive. Methods raise ArchiveError.

    log        its name, for texts
    stretches  in order
    ends       the last position in each epoch that nsq-to-file knew of, in whatever files the messages are
    ids_in     reads the ids of the log in a file
    """

    def __init__(
        self,
        log: LogKey,
        stretches: list[Stretch],
        ends: Mapping[int, Position],
        ids_in: Callable[[FileInfo], Numbers],
    ) -> None:
        self.log = log
        self.stretches = stretches
        self._ends = ends
        self._ids_in = ids_in
        self._last_ids: tuple[Stretch | None, Numbers] = (None, _NO_IDS)
        self._repeated_ids: dict[FileInfo, Numbers] = {}  # of files that overlap
        self._distinct: dict[Stretch, int] = {}
        self._is_said = False

    def learn(self, before: LogArchive) -> None:
        """Take over what was read for an earlier listing of the same log."""
        self._last_ids = before._last_ids
        self._is_said = before._is_said
        files: set[FileInfo] = set()
        for one in self.stretches:
            if one in before._distinct:
                self._distinct[one] = before._distinct[one]
            if not one.is_exact:
                files |= one.files
        self._repeated_ids = {info: ids for info, ids in before._repeated_ids.items() if info in files}

    @property
    def beginning(self) -> Position | None:
        """Return the position before the first message; None if there is none."""
        return next((one.beginning for one in self.stretches), None)

    @property
    def end(self) -> Position | None:
        """Return the position behind the last message; None if there is none."""
        return next((one.end for one in reversed(self.stretches)), None)

    def has(self, message_id: int) -> bool:
        """True if there is a message with this id. The file with it is read."""
        stretches = (one for one in self.stretches if one.first_id <= message_id <= one.last_id)
        return any(message_id in self._ids(one) for one in stretches)

    def count(self, low: Position, high: Position) -> int:
        """Return about how many messages are between two positions, rather more. No file is read for it."""
        found = 0
        cut, ids = self._last_ids
        for one in self._between(low, high):
            if one == cut:
                found += _count_within(ids, low, high)
            elif one.first_seq is not None and high.count is not None and one.epoch == high.epoch:
                found += min(one.messages, high.count - one.first_seq)
            else:
                found += one.messages
        return found

    def take(self, low: Position, high: int, most: int, *, is_complete: bool) -> Position:
        """Return the position behind the first `most` messages after `low` and up to the id `high`.

        Ids are read only of the stretch in which that position is.

        is_complete  no message is missing between the two, so that the number of messages before the position is known if it is
                known before `low`, or where a stretch begins
        """
        position = low
        for one in self.stretches:
            if one.last_id <= position.last_id:
                continue
            if one.first_id > high or not most:
                break
            count = one.first_seq
            if one.first_id <= position.last_id:
                count = None
                if position.epoch == one.epoch:
                    count = position.count
            elif one.last_id <= high and one.messages <= most:
                if count is not None:
                    count += self._messages(one)
                position = replace(one.end, count=count)
                most -= one.messages
                continue
            ids = self._ids(one)
            taken = ids[are_within(ids, position.last_id, high)][:most]
            if len(taken):
                if count is not None:
                    count += len(taken)
                position = Position(int(taken[-1]), count, one.epoch)
                most -= len(taken)
        if is_complete:
            return position
        return replace(position, count=None)

    def missing(
        self,
        low: Position,
        high: Position,
        kept: Retained | None,
        position_at: Callable[[int], Position | None],
    ) -> int:
        """Return how many messages between two positions the archive lacks; where that is not known, how many it may lack.

        Between two positions with known numbers of messages, the archive must have as many ids. Ids are read only if messages
        are missing in a stretch that reaches beyond the two positions. Where the archive begins, nothing is missing, unless the
        number of messages before that is not known.

        kept         what the log keeps, from its earliest message on; None if its nsqd is gone
        position_at  returns the position of a message in the log, if it keeps that message
        """
        ended = {epoch: end.seq for epoch, end in self._ends.items()}
        if kept:
            ended |= dict(kept.ended)
        before = self._before(low)
        after = self._after(high, kept, position_at)
        between = self._beginnings(low.last_id, high.last_id)
        lost = self._lost([before, *between, after], ended)
        if lost:
            if low.count is not None:
                before = low
            if high.count is not None:
                after = high
            lost = self._lost([before, *between, after], ended)
        return lost

    def _beginnings(self, low: int, high: int) -> list[Position]:
        """Return the known positions at which stretches begin that have their first message between two ids."""
        known = [one for one in self.stretches if one.first_seq is not None]
        return [one.beginning for one in known if low < one.first_id <= high]

    def _before(self, low: Position) -> Position | None:
        """Return the last known position up to `low` that is in no stretch; `low` if there is none, None if that is not known."""
        known = self._beginnings(-1, low.last_id)
        stretch = self._around(low)
        if low.count is not None:
            if stretch and stretch.first_seq is not None:
                return stretch.beginning
            return low
        if known:
            return known[-1]
        is_unknown = any(one.first_seq is None for one in self.stretches[:1])
        return Position() if is_unknown else None

    def _after(
        self, high: Position, kept: Retained | None, position_at: Callable[[int], Position | None]
    ) -> Position | None:
        """Return the first known position from `high` on that is in no stretch; `high` if there is none, None if that is not
        known.
        """
        stretch = self._around(high)
        if stretch is None and high.count is not None:
            return high
        end = stretch.last_id if stretch else high.last_id
        if stretch and (position := position_at(end)):
            return position
        known = self._beginnings(end, END_OF_IDS)[:1]
        if kept and kept.is_empty:  # all that is archived is before its end
            newest = self.end or high
            last_id = max(end, newest.last_id, kept.first.last_id)
            known.append(replace(kept.first, message_id=last_id))
        elif kept and kept.first.last_id >= end:
            known.append(kept.first)
        otherwise = None if high.count is None else high
        if kept is None and otherwise is None:
            otherwise = self._last_known()
        return min(known, key=lambda position: position.last_id, default=otherwise)

    def _last_known(self) -> Position | None:
        """Return the last position that nsq-to-file knew of a log; None if it knew none."""
        newest = self.end
        assert newest is not None
        last = self._ends.get(newest.epoch or 0)
        if not self._is_said and (last is None or last.is_before(newest)):
            _log.warning(_UNKNOWN, *self.log)
            self._is_said = True
        return last

    def _around(self, position: Position) -> Stretch | None:
        """Return the stretch with messages on both sides of a position."""
        for one in self.stretches:
            if one.first_id <= position.last_id < one.last_id:
                return one
        return None

    def _lost(self, known: list[Position | None], ended: Mapping[int, int]) -> int:
        """Return how many messages are missing between known positions, which follow each other."""
        there = [position for position in known if position is not None]
        return sum(self._lacking(before, after, ended) for before, after in pairwise(there))

    def _lacking(self, before: Position, after: Position, ended: Mapping[int, int]) -> int:
        """Return how many messages are missing between two known positions.

        ended  how many messages earlier logs had, which were deleted with the topic, by epoch
        """
        if before.epoch is None or after.epoch is None or before.epoch == after.epoch:
            between = after.seq - before.seq
            return max(0, between - self._archived(before, after))
        left = {epoch: count for epoch, count in ended.items() if before.epoch <= epoch < after.epoch}
        unknown = None
        if before.epoch in left:
            left[before.epoch] = max(0, left[before.epoch] - before.seq)
        else:  # so what the archive has of that log does not count
            unknown = before.epoch
        between = sum(left.values()) + after.seq
        return max(0, between - self._archived(before, after, unknown))

    def _archived(self, low: Position, high: Position, but_epoch: int | None = None) -> int:
        """Return how many ids there are between two positions, without those of an epoch."""
        found = 0
        for one in self._between(low, high):
            if but_epoch is not None and one.epoch == but_epoch:
                continue
            if one.first_id > low.last_id and one.last_id <= high.last_id:
                found += self._messages(one)
            else:
                found += _count_within(self._ids(one), low, high)
        return found

    def _between(self, low: Position, high: Position) -> list[Stretch]:
        """Return the stretches that reach between two positions."""
        stretches = self.stretches
        return [one for one in stretches if one.first_id <= high.last_id and one.last_id > low.last_id]

    def _messages(self, stretch: Stretch) -> int:
        """Return how many messages a stretch has, without those that are there twice."""
        if stretch.is_exact:
            return stretch.messages
        if stretch not in self._distinct:
            self._distinct[stretch] = len(self._ids(stretch))
        return self._distinct[stretch]

    def _ids(self, stretch: Stretch) -> Numbers:
        """Return the ids of a stretch in order, each once."""
        known, ids = self._last_ids
        if known != stretch:
            ids_in = self._ids_in if stretch.is_exact else self._ids_in_overlapping
            ids = np.unique(np.concatenate([ids_in(info) for info in stretch.files]))
            ids = ids[are_within(ids, stretch.first_id - 1, stretch.last_id)]
            self._last_ids = stretch, ids
        return ids

    def _ids_in_overlapping(self, info: FileInfo) -> Numbers:
        if info not in self._repeated_ids:
            self._repeated_ids[info] = self._ids_in(info)
        return self._repeated_ids[info]


def merged(stretches: list[Stretch]) -> list[Stretch]:
    """Return stretches that do not overlap, in order."""
    found: list[Stretch] = []
    for one in sorted(stretches, key=lambda one: (one.first_id, one.first_seq is None)):
        if found and one.first_id <= found[-1].last_id:
            found[-1] = found[-1].joined(one)
        else:
            found.append(one)
    return found


def are_within(ids: Numbers, low: int, high: int) -> Any:
    """Return a mask of the ids above one and up to another."""
    return (ids > low) & (ids <= high)


def _count_within(ids: Numbers, low: Position, high: Position) -> int:
    """Return how many of the ids are between two positions."""
    return int(np.count_nonzero(are_within(ids, low.last_id, high.last_id)))
