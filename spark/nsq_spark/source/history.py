"""The archive as the part of logs that nsqds have dropped: which messages it has, and in which files.

The rule of the hand-over: a message is read from the log of its nsqd if that keeps it, otherwise from the archive. Both know it
by its id, and ids rise in a log. The manifest of nsq-to-file has the ids and the positions of the messages in each file, so that
files are not read for a plan. Files that it does not describe are read once.

The archive may have a message twice, since nsq-to-file writes at least once; one of them is read.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
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
from nsq_spark.source.log_archive import LogArchive, Stretch, are_within, merged
from nsq_spark.source.nsqds import END_OF_IDS
from nsq_spark.source.options import ReadOptions, split_bytes

# Files that a table has rewritten stay for an hour or longer, until VACUUM.
_LISTED_FOR_S = 600.0
# A stream asks all the time. It looks at the manifests once a second, and lists files for a twentieth of its time at most.
_LOOK_EVERY_S = 1.0
_LISTING_SHARE = 20
# A task that removes repeated messages reads files that reach into its ids from both sides, so it has more bytes than others.
_SPLITS_OF_WINDOW = 2
_NO_IDS: Numbers = np.zeros(0, np.int64)

_log = logging.getLogger("nsqd_py.spark")


class Owner(NamedTuple):
    """The log of the messages of a name in a file, with ids up to one and above the one before; see `_owners_in`."""

    log: LogKey
    last_id: int


# Of the names in a file.
Owners: TypeAlias = Mapping[LogKey, list[Owner]]


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
                of_name = owners.get(LogKey(chunk.topic, nsqd), [])
                for log, owned in _by_owner(ids, of_name):
                    if bounds := self.bounds.get(log):
                        requested |= owned & are_within(ids, bounds.low, bounds.high)
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
        self._logs: dict[LogKey, LogArchive] = {}
        self._is_listed = False

    def forget(self) -> None:
        """List new files when they are needed again."""
        self._is_listed = False

    def refresh(self) -> None:
        """List files again if nsq-to-file has finished one since then, or if that was long ago. After an error, what was listed
        before stays: the logs that a query reads may not need more.
        """
        now_s = self.clock()
        if not self._is_listed or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_EVERY_S
        if now_s < self._listed_s + _LISTED_FOR_S and not self._known.have_changed():
            return
        self._is_listed = False
        try:
            self.logs()
        except ArchiveError as error:
            _log.warning("%s", error)
            self._is_listed = True
            self._listed_s = -_LISTED_FOR_S  # so that it is listed again
            self._wait_after(now_s)

    def _wait_after(self, began_s: float) -> None:
        """Look again when as much time has passed that listing takes a small share of it."""
        now_s = self.clock()
        self._look_at_s = now_s + max(_LOOK_EVERY_S, _LISTING_SHARE * (now_s - began_s))

    def is_awaited(self) -> bool:
        """True if the archive is not there yet."""
        self.logs()
        return self._is_awaited

    def of(self, log: LogKey) -> LogArchive:
        """Return what the archive has of a log, perhaps nothing."""
        known = self.logs().get(log)
        if known is not None:
            return known
        return LogArchive(log, [], {}, partial(self._ids_of_file, log))

    def condition(self, log: LogKey, low: int, high: int) -> str:
        """Return a condition of Spark for the archived messages of a log with ids above the first and up to the second."""
        names = sorted({f"'{name.nsqd}'" for (name, _), owner in self._owners.items() if owner == log})
        of_nsqd = f" AND nsqd IN ({', '.join(names)})" if names else ""
        return f"topic = '{log.topic}'{of_nsqd} AND id > '{low:016x}' AND id <= '{high:016x}'"

    def logs(self) -> Mapping[LogKey, LogArchive]:
        """Return the logs that the archive has messages of."""
        if self._is_listed:
            return self._logs
        began_s = self.clock()
        try:
            files = self._known.files()
        except NotThere as error:
            if not self._waits:
                raise
            if not self._is_awaited:
                _log.warning("nsq: %s: waiting for it", error)
            self._is_awaited = True
            return {}
        parts = sorted(chain.from_iterable(files.values()), key=lambda named: named[1].last_id)
        newest = {(name, part.epoch): (name, part) for name, part in parts}
        owners = self._owners_of(list(newest.values()))
        for source, log in self._owners.items():
            if owners.get(source, log) != log:
                self._logs.clear()  # what was read of files may be of another log
        self._is_awaited = False
        self._files = files
        self._owners = owners
        self._logs = self._logs_in_files()
        self._is_listed = True
        self._listed_s = self.clock()
        self._wait_after(began_s)
        return self._logs

    def _logs_in_files(self) -> dict[LogKey, LogArchive]:
        stretches: dict[LogKey, list[Stretch]] = defaultdict(list)
        for info, parts in self._files.items():
            for name, part in parts:
                stretch = Stretch(*part[1:-1], frozenset((info,)))
                stretches[self._owners[name, part.epoch]].append(stretch)
        ends = self._ends()
        found: dict[LogKey, LogArchive] = {}
        for log, some in stretches.items():
            found[log] = LogArchive(log, merged(some), ends[log], partial(self._ids_of_file, log))
            if log in self._logs:
                found[log].learn(self._logs[log])
        return found

    def _ends(self) -> dict[LogKey, dict[int, Position]]:
        """Return the last position in each epoch of a log that nsq-to-file knew of, in whatever files the messages are."""
        found: dict[LogKey, dict[int, Position]] = defaultdict(dict)
        for (topic, nsqd, _), part in self._known.positions.items():
            log = self._owners.get((LogKey(topic, nsqd), part.epoch))
            if log is None or part.epoch is None or part.end is None:
                continue
            end = Position(*part.end, part.epoch)
            known = found[log].get(part.epoch, end)
            found[log][part.epoch] = max(end, known, key=attrgetter("seq"))
        return found

    def _ids_of_file(self, log: LogKey, info: FileInfo) -> Numbers:
        owners = self._owners_in(info)
        found = [_NO_IDS]
        for name, ids in ids_in([info], self._options, self._options.requested).items():
            for owner, owned in _by_owner(ids, owners.get(name, [])):
                if owner == log:
                    found.append(ids[owned])
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
        for owners in found.values():
            owners[-1] = owners[-1]._replace(last_id=END_OF_IDS)
        return found

    # ---- what tasks read

    def partitions(self, requested: Mapping[LogKey, Span], columns: Names) -> list[InputPartition]:
        """Return the partitions that read messages of logs with ids above the first and up to the second."""
        bounds = {}
        inexact: set[FileInfo] = set()
        for log, span in requested.items():
            bounds[log] = Bounds(log, *span)
            for stretch in self.of(log).stretches:
                if not stretch.is_exact:
                    inexact |= stretch.files
        owners = {name: [Owner(log, END_OF_IDS)] for (name, _), log in self._owners.items()}
        of_files: dict[str, Owners] = {}
        single: list[FileInfo] = []
        mixed: list[FileInfo] = []
        for info in self._with_some(self._files, bounds):
            of_file = self._owners_in(info)
            is_of_one = all(owners[name] == found_owners for name, found_owners in of_file.items())
            if not is_of_one:
                of_files[info.path] = of_file
            if info in inexact:
                mixed.append(info)
            else:
                single.append(info)
        size_bytes = sum(info.size_bytes for info in self._files)
        target_bytes = split_bytes(self._options.split_bytes, size_bytes)
        groups = pack(plan_splits(single, target_bytes), target_bytes)
        found: list[InputPartition] = []
        for group in groups:
            found.append(HistoryPartition(self._options, columns, group, bounds, owners, of_files))
        for window, splits in self._windows(mixed, bounds, _SPLITS_OF_WINDOW * target_bytes):
            found.append(
                HistoryPartition(self._options, columns, splits, window, owners, of_files, may_repeat=True)
            )
        return found

    def _with_some(self, files: Iterable[FileInfo], bounds: Mapping[LogKey, Bounds]) -> list[FileInfo]:
        """Return the files that may have messages within bounds."""
        found = []
        for info in files:
            bounded = self._bounded(info, bounds)
            if any(of_log.overlap(part) for of_log, part in bounded):
                found.append(info)
        return found

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
        size_bytes = 0
        reached = 0
        for info in sorted(files, key=self._first_id):
            size_bytes += info.size_bytes
            last_ids = [part.last_id for _, part in self._bounded(info, bounds)]
            reached = max(reached, *last_ids)
            if size_bytes >= target_bytes:
                cuts.append(reached)
                size_bytes = 0
        for low, high in pairwise([*cuts, END_OF_IDS]):
            window = {}
            for log, each in bounds.items():
                if each.low < high and each.high > low:
                    window[log] = each.within(low, high)
            yield window, plan_splits(self._with_some(files, window), END_OF_IDS)

    def _first_id(self, info: FileInfo) -> int:
        return min(part.first_id for _, part in self._files[info])


def _by_owner(ids: Numbers, owners: list[Owner]) -> Iterator[tuple[LogKey, Any]]:
    """Yield the logs that ids belong to, and masks of these."""
    low = -1
    for log, last_id in owners:
        yield log, are_within(ids, low, last_id)
        low = last_id


def _are_new(ids: Numbers, known: Numbers) -> Numbers:
    """Return a mask of the ids that neither the known ones nor those before them are equal to."""
    mask = np.zeros(len(known) + len(ids), dtype=bool)
    _, firsts = np.unique(np.append(known, ids), return_index=True)
    mask[firsts] = True
    return mask[len(known) :]
