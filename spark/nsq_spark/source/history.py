"""The archive as the part of logs that nsqds have dropped: which messages it has, and in which files.

The rule of the hand-over: a message is read from the log of its nsqd if that keeps it, otherwise from the archive. Both know it
by its id, and ids rise in a log. The manifest of nsq-to-file has the ids and the positions of the messages in each file, so that
files are not read for a plan. Files that it does not describe are read once.

The archive may have a message twice, since nsq-to-file writes at least once; one of them is read. A *stretch* has the messages of
a log in files whose ids overlap; no two stretches overlap.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pyspark.sql.datasource import InputPartition

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.sidecars import NsqdPart
from nsq_spark.archive.splits import (
    ArchiveError,
    FileInfo,
    Names,
    NotThere,
    Numbers,
    Span,
    Split,
    pack,
    plan_splits,
)
from nsq_spark.source.archived_files import ArchivedFiles, Parts, by_nsqd, ids_in
from nsq_spark.source.batch_reader import ArchivePartition
from nsq_spark.source.known_logs import Source
from nsq_spark.source.live_options import LogKey, Position
from nsq_spark.source.nsqds import END_OF_IDS, Retained
from nsq_spark.source.options import ReadOptions, split_bytes

# Files that a table has rewritten stay for an hour or longer, until VACUUM.
_LISTED_FOR_S = 600.0
# A stream asks all the time. It looks at the manifests once a second, and lists files for a twentieth of its time at most.
_LOOK_EVERY_S = 1.0
_LISTING_SHARE = 20
# A task that removes repeated messages reads files that reach into its ids from both sides, so it has more bytes than others.
_SPLITS_OF_WINDOW = 2
_NO_IDS: Numbers = np.zeros(0, np.int64)
_UNKNOWN = (
    "nsq: it is not known whether the archive has all messages of topic %s of %s, whose log is gone: nsq-to-file did not note "
    "how many there were"
)

_log = logging.getLogger("nsqd_py.spark")


class Owner(NamedTuple):
    """The log of the messages of a name in a file, with ids up to one and above the one before; see `_owners_in`."""

    log: LogKey
    last_id: int


# Of the names in a file.
Owners: TypeAlias = Mapping[LogKey, list[Owner]]


class Stretch(NamedTuple):
    """Messages of a log; see above.

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


class Bounds(NamedTuple):
    """Messages of a log to read: those with ids above `low` and up to `high`."""

    log: LogKey
    low: int
    high: int

    def overlap(self, part: NsqdPart) -> bool:
        return part.first_id <= self.high and part.last_id > self.low

    def within(self, low: int, high: int) -> Bounds:
        return Bounds(self.log, max(low, self.low), min(high, self.high))


@dataclass(repr=False)
class HistoryPartition(ArchivePartition):
    """Messages within bounds, by log; each once if they may be repeated.

    owners    of topics and nsqds, as the archive names these
    of_files  of those files in which a name belongs to another log than in the newest file
    """

    bounds: Mapping[LogKey, Bounds] = field(default_factory=dict)
    owners: Owners = field(default_factory=dict)
    of_files: Mapping[str, Owners] = field(default_factory=dict)
    may_repeat: bool = False

    def chooser(self) -> Callable[[Chunk], Chunk]:
        seen: dict[LogKey, Numbers] = defaultdict(lambda: _NO_IDS)

        def chosen(chunk: Chunk) -> Chunk:
            mask = np.zeros(chunk.count, dtype=bool)
            owners = self.of_files.get(chunk.file, self.owners)
            for nsqd, rows, ids in by_nsqd(chunk):
                requested = np.zeros(len(ids), dtype=bool)
                for log, owned in _by_owner(ids, owners.get(LogKey(chunk.topic, nsqd), [])):
                    if bounds := self.bounds.get(log):
                        requested |= owned & _are_within(ids, bounds.low, bounds.high)
                        if self.may_repeat:
                            requested &= ~owned | _are_new(ids, seen[log])
                            seen[log] = np.append(seen[log], ids[owned & requested])
                mask[rows] = requested
            return chunk.filter(mask)

        return chosen


class History:
    """The contents of an archive, by log. It is listed when that is needed; again after `forget`, or after `refresh` if there
    is something new.

    owners_of      returns the logs of topics and nsqds of the archive, by the last messages of each in each epoch
    remembered_at  where it is retained what files have that no manifest describes; "" for nowhere
    waits          True if the archive need not be there yet
    clock          seconds that have passed

    Its methods raise ArchiveError.
    """

    def __init__(
        self,
        options: ReadOptions,
        owners_of: Callable[[list[tuple[LogKey, NsqdPart]]], Mapping[Source, LogKey]],
        remembered_at: str = "",
        *,
        waits: bool = False,
    ) -> None:
        self._options = options
        self._owners_of = owners_of
        self._known = ArchivedFiles(options, remembered_at)
        self._waits = waits
        self._is_awaited = False
        self.clock = time.monotonic
        self._listed_s = 0.0
        self._look_at_s = 0.0
        self._files: dict[FileInfo, Parts] = {}
        self._owners: Mapping[Source, LogKey] = {}
        self._stretches: dict[LogKey, list[Stretch]] | None = None
        self._known_ends: dict[LogKey, dict[int, Position]] = {}
        self._unknown: set[LogKey] = set()  # logs of which the archive may lack messages
        self._last_ids: dict[LogKey, tuple[Stretch, Numbers]] = {}
        self._repeated_ids: dict[tuple[LogKey, FileInfo], Numbers] = {}  # of files whose ids overlap
        self._distinct: dict[tuple[LogKey, Stretch], int] = {}

    def forget(self) -> None:
        """List new files when they are needed again."""
        self._stretches = None

    def refresh(self) -> None:
        """List new files when they are needed again, if nsq-to-file has finished one since then, or if that was long ago."""
        now_s = self.clock()
        if self._stretches is None or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_EVERY_S
        if now_s >= self._listed_s + _LISTED_FOR_S or self._known.have_changed():
            self.forget()

    def is_awaited(self) -> bool:
        """True if the archive is not there yet."""
        self.logs()
        return self._is_awaited

    def logs(self) -> Mapping[LogKey, list[Stretch]]:
        """Return the stretches of each log that the archive has messages of, in order."""
        if self._stretches is not None:
            return self._stretches
        began_s = self.clock()
        try:
            self._files = self._known.files()
        except NotThere as error:
            if not self._waits:
                raise
            if not self._is_awaited:
                _log.warning("nsq: %s: waiting for it", error)
            self._is_awaited = True
            return {}
        self._is_awaited = False
        self._listed_s = self.clock()
        self._look_at_s = self._listed_s + max(_LOOK_EVERY_S, _LISTING_SHARE * (self._listed_s - began_s))
        parts = sorted(chain.from_iterable(self._files.values()), key=lambda named: named[1].last_id)
        newest = {(name, part.epoch): (name, part) for name, part in parts}
        owners = self._owners_of(list(newest.values()))
        found: dict[LogKey, list[Stretch]] = defaultdict(list)
        for info, named in self._files.items():
            for name, part in named:
                found[owners[name, part.epoch]].append(Stretch(*part[1:-1], frozenset((info,))))
        stretches = {log: _merged(some) for log, some in found.items()}
        is_changed = any(owners.get(source, log) != log for source, log in self._owners.items())
        self._forget_ids(stretches, is_all=is_changed)
        self._owners = owners
        self._known_ends = self._ends()
        self._stretches = stretches
        return stretches

    def _forget_ids(self, stretches: Mapping[LogKey, list[Stretch]], *, is_all: bool) -> None:
        """Forget ids of stretches and files that are not there any more, or all: an id may be of another log then."""
        there = {(log, one) for log, some in stretches.items() for one in some if not is_all}
        files = {(log, info) for log, one in there if not one.is_exact for info in one.files}
        self._last_ids = {log: known for log, known in self._last_ids.items() if (log, known[0]) in there}
        self._repeated_ids = {key: ids for key, ids in self._repeated_ids.items() if key in files}
        self._distinct = {key: count for key, count in self._distinct.items() if key in there}

    def _ends(self) -> dict[LogKey, dict[int, Position]]:
        """Return the last position in each epoch of a log that nsq-to-file knew of, in whatever files the messages are."""
        found: dict[LogKey, dict[int, Position]] = defaultdict(dict)
        for (topic, nsqd, _), part in self._known.positions.items():
            log = self._owners.get((LogKey(topic, nsqd), part.epoch))
            if log is None or part.epoch is None or part.end is None:
                continue
            end = Position(*part.end, part.epoch)
            found[log][part.epoch] = max(end, found[log].get(part.epoch, end), key=attrgetter("seq"))
        return found

    def stretches(self, log: LogKey) -> list[Stretch]:
        """Return them in order."""
        return self.logs().get(log, [])

    # ---- positions

    def beginning(self, log: LogKey) -> Position | None:
        """Return the position before the first message; None if there is none."""
        return next((one.beginning for one in self.stretches(log)), None)

    def end(self, log: LogKey) -> Position | None:
        """Return the position behind the last message; None if there is none."""
        return next((one.end for one in reversed(self.stretches(log))), None)

    def count(self, log: LogKey, low: Position, high: Position) -> int:
        """Return about how many messages are between two positions, rather more. No file is read for it."""
        found = 0
        cut, ids = self._last_ids.get(log, (None, _NO_IDS))
        for one in self._between(log, low, high):
            if one == cut:
                found += int(np.count_nonzero(_are_within(ids, low.last_id, high.last_id)))
            elif one.first_seq is not None and high.count is not None and one.epoch == high.epoch:
                found += min(one.messages, high.count - one.first_seq)
            else:
                found += one.messages
        return found

    def take(self, log: LogKey, low: Position, high: int, most: int, *, is_complete: bool) -> Position:
        """Return the position behind the first `most` messages after `low` and up to the id `high`.

        Ids are read only of the stretch in which that position is.

        is_complete  no message is missing between the two, so that the number of messages before the position is known if it is
                known before `low`, or where a stretch begins
        """
        position = low
        for one in self.stretches(log):
            if one.last_id <= position.last_id:
                continue
            if one.first_id > high or not most:
                break
            count = one.first_seq
            if one.first_id <= position.last_id:
                count = position.count if position.epoch == one.epoch else None
            elif one.last_id <= high and one.messages <= most:
                position = replace(one.end, count=None if count is None else count + self._messages(log, one))
                most -= one.messages
                continue
            ids = self._ids(log, one)
            taken = ids[_are_within(ids, position.last_id, high)][:most]
            if len(taken):
                position = Position(int(taken[-1]), None if count is None else count + len(taken), one.epoch)
                most -= len(taken)
        return position if is_complete else replace(position, count=None)

    def missing(
        self,
        log: LogKey,
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
        ended = self._known_counts(log) | dict(kept.ended if kept else ())
        before = self._before(log, low)
        after = self._after(log, high, kept, position_at)
        between = self._beginnings(log, low.last_id, high.last_id)
        lost = self._lost(log, [before, *between, after], ended)
        if lost:
            before = before if low.count is None else low
            after = after if high.count is None else high
            lost = self._lost(log, [before, *between, after], ended)
        return lost

    def _known_counts(self, log: LogKey) -> dict[int, int]:
        """Return how many messages each epoch of a log had at least."""
        return {epoch: end.seq for epoch, end in self._known_ends.get(log, {}).items()}

    def _beginnings(self, log: LogKey, low: int, high: int) -> list[Position]:
        """Return the known positions at which stretches begin that have their first message between two ids."""
        return [
            one.beginning
            for one in self.stretches(log)
            if one.first_seq is not None and low < one.first_id <= high
        ]

    def _before(self, log: LogKey, low: Position) -> Position | None:
        """Return the last known position up to `low` that is in no stretch; `low` if there is none, None if that is not known."""
        known = self._beginnings(log, -1, low.last_id)
        stretch = self._around(log, low)
        if low.count is not None:
            return stretch.beginning if stretch and stretch.first_seq is not None else low
        if known:
            return known[-1]
        is_unknown = any(one.first_seq is None for one in self.stretches(log)[:1])
        return Position() if is_unknown else None

    def _after(
        self,
        log: LogKey,
        high: Position,
        kept: Retained | None,
        position_at: Callable[[int], Position | None],
    ) -> Position | None:
        """Return the first known position from `high` on that is in no stretch; `high` if there is none, None if that is not
        known.
        """
        stretch = self._around(log, high)
        if stretch is None and high.count is not None:
            return high
        end = stretch.last_id if stretch else high.last_id
        if stretch and (position := position_at(end)):
            return position
        known = self._beginnings(log, end, END_OF_IDS)[:1]
        if kept and kept.is_empty:  # all that is archived is before its end
            newest = self.end(log) or high
            known.append(replace(kept.first, message_id=max(end, newest.last_id, kept.first.last_id)))
        elif kept and kept.first.last_id >= end:
            known.append(kept.first)
        otherwise = None if high.count is None else high
        if kept is None and otherwise is None:
            otherwise = self._last_known(log)
        return min(known, key=lambda position: position.last_id, default=otherwise)

    def _last_known(self, log: LogKey) -> Position | None:
        """Return the last position that nsq-to-file knew of a log; None if it knew none."""
        newest = self.end(log)
        assert newest is not None
        last = self._known_ends.get(log, {}).get(newest.epoch or 0)
        if log not in self._unknown and (last is None or last.is_before(newest)):
            _log.warning(_UNKNOWN, log.topic, log.nsqd)
            self._unknown.add(log)
        return last

    def _around(self, log: LogKey, position: Position) -> Stretch | None:
        """Return the stretch with messages on both sides of a position."""
        for one in self.stretches(log):
            if one.first_id <= position.last_id < one.last_id:
                return one
        return None

    def _lost(self, log: LogKey, known: list[Position | None], ended: Mapping[int, int]) -> int:
        """Return how many messages are missing between known positions, which follow each other."""
        there = [position for position in known if position is not None]
        return sum(self._lacking(log, before, after, ended) for before, after in pairwise(there))

    def _lacking(self, log: LogKey, before: Position, after: Position, ended: Mapping[int, int]) -> int:
        """Return how many messages are missing between two known positions.

        ended  how many messages earlier logs had, which were deleted with the topic, by epoch
        """
        if before.epoch is None or after.epoch is None or before.epoch == after.epoch:
            return max(0, after.seq - before.seq - self._archived(log, before, after))
        left = {epoch: count for epoch, count in ended.items() if before.epoch <= epoch < after.epoch}
        unknown = None
        if before.epoch in left:
            left[before.epoch] = max(0, left[before.epoch] - before.seq)
        else:  # so what the archive has of that log does not count
            unknown = before.epoch
        return max(0, sum(left.values()) + after.seq - self._archived(log, before, after, unknown))

    def _archived(self, log: LogKey, low: Position, high: Position, but_epoch: int | None = None) -> int:
        """Return how many ids there are between two positions, without those of an epoch."""
        found = 0
        for one in self._between(log, low, high):
            if but_epoch is not None and one.epoch == but_epoch:
                continue
            if one.first_id > low.last_id and one.last_id <= high.last_id:
                found += self._messages(log, one)
            else:
                ids = self._ids(log, one)
                found += int(np.count_nonzero(_are_within(ids, low.last_id, high.last_id)))
        return found

    def _between(self, log: LogKey, low: Position, high: Position) -> list[Stretch]:
        """Return the stretches that reach between two positions."""
        stretches = self.stretches(log)
        return [one for one in stretches if one.first_id <= high.last_id and one.last_id > low.last_id]

    def _messages(self, log: LogKey, stretch: Stretch) -> int:
        """Return how many messages a stretch has, without those that are there twice."""
        if stretch.is_exact:
            return stretch.messages
        if (log, stretch) not in self._distinct:
            self._distinct[log, stretch] = len(self._ids(log, stretch))
        return self._distinct[log, stretch]

    def _ids(self, log: LogKey, stretch: Stretch) -> Numbers:
        """Return the ids of a stretch in order, each once."""
        known, ids = self._last_ids.get(log, (None, _NO_IDS))
        if known != stretch:
            ids_of_file = self._ids_of_file if stretch.is_exact else self._repeated_ids_of_file
            ids = np.unique(np.concatenate([ids_of_file(log, info) for info in stretch.files]))
            ids = ids[_are_within(ids, stretch.first_id - 1, stretch.last_id)]
            self._last_ids[log] = stretch, ids
        return ids

    def _repeated_ids_of_file(self, log: LogKey, info: FileInfo) -> Numbers:
        if (log, info) not in self._repeated_ids:
            self._repeated_ids[log, info] = self._ids_of_file(log, info)
        return self._repeated_ids[log, info]

    def _ids_of_file(self, log: LogKey, info: FileInfo) -> Numbers:
        owners = self._owners_in(info)
        found = [_NO_IDS]
        for name, ids in ids_in([info], self._options, self._options.requested).items():
            found += [ids[owned] for owner, owned in _by_owner(ids, owners.get(name, [])) if owner == log]
        return np.concatenate(found)

    def _owners_in(self, info: FileInfo) -> Owners:
        """Return the logs of the names in a file. An address may have been that of several nsqds, one after the other."""
        found: dict[LogKey, list[Owner]] = {}
        for name, part in sorted(self._files[info], key=lambda named: named[1].first_id):
            log = self._owners[name, part.epoch]
            owners = found.setdefault(name, [])
            last_id = part.last_id
            if owners and owners[-1].log == log:
                last_id = max(last_id, owners.pop().last_id)
            elif owners and owners[-1].last_id >= part.first_id:
                raise ArchiveError(
                    f"nsq: {info.path} has messages of topic {name.topic} of two nsqds that had the address {name.nsqd} in "
                    "turn, and their ids do not say which message is of which: nsq-to-file must begin another file then"
                )
            owners.append(Owner(log, last_id))
        return {
            name: [*owners[:-1], owners[-1]._replace(last_id=END_OF_IDS)] for name, owners in found.items()
        }

    # ---- what tasks read

    def partitions(self, requested: Mapping[LogKey, Span], columns: Names) -> list[InputPartition]:
        """Return the partitions that read messages of logs with ids above the first and up to the second."""
        stretches = chain.from_iterable(map(self.stretches, requested))
        inexact: set[FileInfo] = set().union(*(one.files for one in stretches if not one.is_exact))
        bounds = {log: Bounds(log, *span) for log, span in requested.items()}
        owners = {name: [Owner(log, END_OF_IDS)] for (name, _), log in self._owners.items()}
        of_files: dict[str, Owners] = {}
        single: list[FileInfo] = []
        mixed: list[FileInfo] = []
        for info in self._with_some(self._files, bounds):
            of_file = self._owners_in(info)
            if any(owners[name] != found_owners for name, found_owners in of_file.items()):
                of_files[info.path] = of_file
            if info in inexact:
                mixed.append(info)
            else:
                single.append(info)
        target_bytes = split_bytes(self._options.split_bytes, sum(info.size_bytes for info in self._files))
        groups = pack(plan_splits(single, target_bytes), target_bytes)
        found: list[InputPartition] = [
            HistoryPartition(self._options, columns, group, bounds, owners, of_files) for group in groups
        ]
        for window, splits in self._windows(mixed, bounds, _SPLITS_OF_WINDOW * target_bytes):
            found.append(
                HistoryPartition(self._options, columns, splits, window, owners, of_files, may_repeat=True)
            )
        return found

    def _with_some(self, files: Iterable[FileInfo], bounds: Mapping[LogKey, Bounds]) -> list[FileInfo]:
        """Return the files that may have messages within bounds."""
        return [
            info
            for info in files
            if any(of_log.overlap(part) for of_log, part in self._bounded(info, bounds))
        ]

    def _bounded(self, info: FileInfo, bounds: Mapping[LogKey, Bounds]) -> Iterator[tuple[Bounds, NsqdPart]]:
        """Yield the parts of a file that are of a log with bounds, with these."""
        for name, part in self._files[info]:
            of_log = bounds.get(self._owners[name, part.epoch])
            if of_log:
                yield of_log, part

    def _windows(
        self, files: list[FileInfo], bounds: Mapping[LogKey, Bounds], target_bytes: int
    ) -> Iterator[tuple[dict[LogKey, Bounds], list[Split]]]:
        """Yield bounds that follow each other, and the splits of the files that reach into them."""
        cuts = [0]
        size_bytes = reached = 0
        for info in sorted(files, key=lambda info: min(part.first_id for _, part in self._files[info])):
            size_bytes += info.size_bytes
            reached = max(reached, *(part.last_id for _, part in self._bounded(info, bounds)))
            if size_bytes >= target_bytes:
                cuts.append(reached)
                size_bytes = 0
        for low, high in pairwise([*cuts, END_OF_IDS]):
            window = {
                log: each.within(low, high)
                for log, each in bounds.items()
                if each.low < high and each.high > low
            }
            yield window, plan_splits(self._with_some(files, window), END_OF_IDS)


def _merged(stretches: list[Stretch]) -> list[Stretch]:
    found: list[Stretch] = []
    for one in sorted(stretches, key=lambda one: (one.first_id, one.first_seq is None)):
        if found and one.first_id <= found[-1].last_id:
            found[-1] = found[-1].joined(one)
        else:
            found.append(one)
    return found


def _by_owner(ids: Numbers, owners: list[Owner]) -> Iterator[tuple[LogKey, Any]]:
    """Yield the logs that ids belong to, and masks of these."""
    low = -1
    for log, last_id in owners:
        yield log, _are_within(ids, low, last_id)
        low = last_id


def _are_within(ids: Numbers, low: int, high: int) -> Any:
    """Return a mask of the ids above one and up to another."""
    return (ids > low) & (ids <= high)


def _are_new(ids: Numbers, known: Numbers) -> Numbers:
    """Return a mask of the ids that neither the known ones nor those before them are equal to."""
    mask = np.zeros(len(known) + len(ids), dtype=bool)
    mask[np.unique(np.append(known, ids), return_index=True)[1]] = True
    return mask[len(known) :]
