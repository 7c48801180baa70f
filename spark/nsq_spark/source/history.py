"""The archive as the part of logs that nsqds have dropped: which messages it has, and in which files.

The rule of the hand-over: a message is read from the log of its nsqd if that keeps it, otherwise from the archive. Both know it
by its id, and ids rise in a log. The manifest of nsq-to-file has the ids and the places of the messages in each file, so that
files are not read for a plan. Files that it does not describe are read once.

The archive may have a message twice, since nsq-to-file writes at least once; one of them is read. A *stretch* has the messages of
a log in files whose ids overlap; no two stretches overlap.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.listing import entries, survey
from nsq_spark.archive.read import read
from nsq_spark.archive.sidecars import Manifests, NsqdPart
from nsq_spark.archive.splits import ArchiveError, Damage, FileInfo, NotThere, Numbers, Split, pack, plan_splits
from nsq_spark.archive.storage import Entry
from nsq_spark.source.batch_reader import ArchivePartition
from nsq_spark.source.live_options import LogKey, Position
from nsq_spark.source.nsqds import END_OF_IDS
from nsq_spark.source.options import ReadOptions, split_bytes

_REPORT_EVERY_S = 10.0
# A task that removes repeated messages reads files that reach into its ids from both sides, so it has more bytes than others.
_SPLITS_OF_WINDOW = 2

_log = logging.getLogger("nsqd_py.spark")


class ArchivedFile(NamedTuple):
    """A file, and its messages by topic and nsqd, as the archive names this."""

    info: FileInfo
    parts: list[tuple[LogKey, NsqdPart]]


class Stretch(NamedTuple):
    """Messages of a log; see above.

    messages   their number; a message that is there twice may count twice, unless `is_exact`
    first_seq  number of messages in the log before the first one, and the epoch of the log; None if not known
    files      their numbers
    """

    first_id: int
    last_id: int
    messages: int
    is_exact: bool
    epoch: int | None
    first_seq: int | None
    files: tuple[int, ...]

    def joined(self, other: Stretch) -> Stretch:
        """Return this stretch with a later one that overlaps it."""
        last_id, messages = max(self.last_id, other.last_id), self.messages + other.messages
        files = tuple(dict.fromkeys(self.files + other.files))
        places = [one for one in (self, other) if one.first_id == self.first_id and one.first_seq is not None]
        first_seq = places[0].first_seq if places else None
        return Stretch(self.first_id, last_id, messages, False, self.epoch or other.epoch, first_seq, files)

    def count_up_to(self, messages: int) -> int | None:
        """Return how many messages the log has up to the first `messages` of the stretch."""
        return None if self.first_seq is None else self.first_seq + messages


class Bounds(NamedTuple):
    """Messages of a log to read: those with ids above `low` and up to `high`."""

    log: LogKey
    low: int
    high: int

    def overlap(self, part: NsqdPart) -> bool:
        return part.first_id <= self.high and part.last_id > self.low


@dataclass(repr=False)
class HistoryPartition(ArchivePartition):
    """Messages within bounds, by topic and nsqd as the archive names this; each once if they may be repeated."""

    bounds: Mapping[LogKey, Bounds] = field(default_factory=dict)
    may_repeat: bool = False

    def chooser(self) -> Callable[[Chunk], Chunk]:
        seen: dict[LogKey, Numbers] = {}

        def chosen(chunk: Chunk) -> Chunk:
            mask = np.zeros(chunk.count, dtype=bool)
            for nsqd, rows, ids in _by_nsqd(chunk):
                if bounds := self.bounds.get(LogKey(chunk.topic, nsqd)):
                    wanted = (ids > bounds.low) & (ids <= bounds.high)
                    if self.may_repeat:
                        wanted &= _first_of_each(ids) & ~np.isin(ids, known := seen.get(bounds.log, ids[:0]))
                        seen[bounds.log] = np.append(known, ids[wanted])
                    mask[rows] = wanted
            return chunk.filter(mask)

        return chosen


class History:
    """What an archive has of logs. It is listed when that is needed, once, until `forget` is called.

    owners_of      returns the logs of topics and nsqds of the archive, by the last messages of each
    remembered_at  where it is kept what files have that no manifest describes; "" for nowhere
    waits          True if the archive need not be there yet; `is_there` says whether it is
    """

    def __init__(
        self,
        options: ReadOptions,
        owners_of: Callable[[Mapping[LogKey, NsqdPart]], Mapping[LogKey, LogKey]],
        remembered_at: str = "",
        *,
        waits: bool = False,
    ) -> None:
        self._options = options
        self._owners_of = owners_of
        self._known = _KnownFiles(options, remembered_at)
        self._waits = waits
        self.is_there = True
        self._files: list[ArchivedFile] = []
        self._owners: Mapping[LogKey, LogKey] = {}
        self._stretches: dict[LogKey, list[Stretch]] | None = None
        self._distinct: dict[Stretch, int] = {}
        self._last_ids: tuple[Stretch | None, Numbers] = None, np.zeros(0, np.int64)

    def forget(self) -> None:
        """Look for new files when they are needed again."""
        self._stretches = None

    def stretches(self, log: LogKey) -> list[Stretch]:
        """Return them in order. Raises ArchiveError."""
        return self.logs().get(log, [])

    def logs(self) -> Mapping[LogKey, list[Stretch]]:
        """Return the stretches of each log that the archive has messages of. Raises ArchiveError."""
        if self._stretches is None:
            try:
                self._files = list(self._known.files())
                self.is_there = True
            except NotThere as error:
                if not self._waits:
                    raise
                if self.is_there:
                    _log.warning("nsq: %s: waiting for it", error)
                self.is_there = False
                return {}
            newest: dict[LogKey, NsqdPart] = {}
            for file in self._files:
                for name, part in file.parts:
                    newest[name] = max(part, newest.get(name, part), key=lambda part: part.last_id)
            self._owners = self._owners_of(newest)
            found: dict[LogKey, list[Stretch]] = {}
            for number, file in enumerate(self._files):
                for name, (_, first_id, last_id, count, is_ordered, epoch, first_seq) in file.parts:
                    stretch = Stretch(first_id, last_id, count, is_ordered, epoch, first_seq, (number,))
                    found.setdefault(self._owners[name], []).append(stretch)
            self._stretches = {log: _merged(stretches) for log, stretches in found.items()}
            self._distinct, self._last_ids = {}, (None, self._last_ids[1])
        return self._stretches

    # ---- places

    def beginning(self, log: LogKey) -> Position | None:
        """Return the place before the first message; None if there is none. Raises ArchiveError."""
        first = next(iter(self.stretches(log)), None)
        return Position(first.first_id - 1, first.first_seq, first.epoch) if first else None

    def end(self, log: LogKey) -> Position | None:
        """Return the place behind the last message; None if there is none. Raises ArchiveError."""
        last = next(reversed(self.stretches(log)), None)
        return Position(last.last_id, last.count_up_to(last.messages), last.epoch) if last else None

    def count(self, log: LogKey, low: int, high: int) -> int:
        """Return about how many messages have ids above `low` and up to `high`, rather more. Raises ArchiveError."""
        return sum(one.messages for one in self.stretches(log) if one.first_id <= high and one.last_id > low)

    def take(self, log: LogKey, low: Position, high: int, most: int) -> Position:
        """Return the place behind the first `most` messages after `low` and up to the id `high`. Raises ArchiveError.

        Ids are read only of the stretch in which that place is.
        """
        place, left = low, most
        for one in self.stretches(log):
            if one.last_id <= place.last_id:
                continue
            if one.first_id > high or not left:
                break
            if one.first_id > place.last_id and one.last_id <= high and one.messages <= left:
                place, left = Position(one.last_id, one.count_up_to(one.messages), one.epoch), left - one.messages
                continue
            ids = self._ids(log, one)
            wanted = ids[(ids > place.last_id) & (ids <= high)][:left]
            if len(wanted):
                last_id, left = int(wanted[-1]), left - len(wanted)
                place = Position(last_id, one.count_up_to(int(np.searchsorted(ids, last_id, "right"))), one.epoch)
        return place

    def missing(self, log: LogKey, low: Position, high: Position, count_at: Callable[[int], int | None]) -> int:
        """Return how many messages between two places the archive lacks. Raises ArchiveError.

        Messages are missing where the next stretch, or the end, has more messages before it than were found up to there. Where
        the archive begins, nothing is missing, unless the number of messages before that is not known.

        count_at  returns the number of messages that a log has up to an id, if it keeps that message
        """
        lost, found = 0, _Count(None, None)
        last_id = -1
        for one in self.stretches(log):
            if one.first_id > high.last_id:
                break
            if last_id <= low.last_id < one.first_id and low.count is not None:
                found = _Count(low.count, low.epoch)
            if one.epoch is not None and found.epoch not in (None, one.epoch):
                found = _Count(0, one.epoch)
            if one.first_seq is not None:
                if found.messages is not None and one.first_id > low.last_id:
                    lost += self._lacking(log, found, one.first_seq)
                found = _Count(one.first_seq, one.epoch)
            elif one.first_id <= low.last_id < one.last_id and low.count is not None:
                ids = self._ids(log, one)
                before = int(np.searchsorted(ids, low.last_id, "right"))
                found = _Count(low.count - before, low.epoch)
            found.add(one)
            last_id = one.last_id
        if last_id <= low.last_id:
            found = _Count(low.count, low.epoch)
        expected = high.count if last_id <= high.last_id else count_at(last_id)
        if None not in (high.epoch, found.epoch) and high.epoch != found.epoch:
            found = _Count(0, high.epoch)
        return lost + (self._lacking(log, found, expected) if expected is not None and found.messages is not None else 0)

    def _lacking(self, log: LogKey, found: _Count, expected: int) -> int:
        """Return how many messages there are too few. Of stretches in which some may be there twice, the ids are read."""
        messages = found.messages or 0
        if messages < expected:
            return expected - messages
        for one in found.inexact:
            if one not in self._distinct:
                self._distinct[one] = len(self._ids(log, one))
            messages -= one.messages - self._distinct[one]
        return max(0, expected - messages)

    def _ids(self, log: LogKey, stretch: Stretch) -> Numbers:
        """Return the ids of a stretch in order, each once. Raises ArchiveError."""
        if self._last_ids[0] != stretch:
            infos = [self._files[number].info for number in stretch.files]
            found = [ids for name, ids in _ids_in(infos, self._options) if self._owners.get(name) == log]
            ids = np.unique(np.concatenate([*found, np.zeros(0, np.int64)]))
            self._last_ids = stretch, ids[(ids >= stretch.first_id) & (ids <= stretch.last_id)]
        return self._last_ids[1]

    # ---- what tasks read

    def partitions(self, wanted: Mapping[LogKey, tuple[int, int]], columns: tuple[str, ...]) -> list[InputPartition]:
        """Return the partitions that read messages of logs with ids above the first and up to the second. Raises ArchiveError."""
        if not wanted:
            return []
        logs = self.logs()
        bounds = {name: Bounds(log, *wanted[log]) for name, log in self._owners.items() if log in wanted}
        inexact = {(log, number) for log in wanted for one in logs.get(log, ()) if not one.is_exact for number in one.files}
        single: list[FileInfo] = []
        mixed: list[ArchivedFile] = []
        for number, file in enumerate(self._files):
            names = [name for name, part in file.parts if name in bounds and bounds[name].overlap(part)]
            if any((bounds[name].log, number) in inexact for name in names):
                mixed.append(file)
            elif names:
                single.append(file.info)
        target_bytes = split_bytes(self._options.split_bytes, sum(file.info.size_bytes for file in self._files))
        groups = pack(plan_splits(single, target_bytes), target_bytes)
        found: list[InputPartition] = [HistoryPartition(self._options, columns, group, bounds) for group in groups]
        for window, splits in _windows(mixed, bounds, _SPLITS_OF_WINDOW * target_bytes):
            found.append(HistoryPartition(self._options, columns, splits, window, may_repeat=True))
        return found


class _Count:
    """The number of messages that were found in an epoch of a log; None if it is not known where counting began.

    inexact  the stretches among them in which messages may be there twice
    """

    def __init__(self, messages: int | None, epoch: int | None) -> None:
        self.messages = messages
        self.epoch = epoch
        self.inexact: list[Stretch] = []

    def add(self, stretch: Stretch) -> None:
        self.messages = (self.messages or 0) + stretch.messages
        self.epoch = stretch.epoch or self.epoch
        if not stretch.is_exact:
            self.inexact.append(stretch)


def _merged(stretches: list[Stretch]) -> list[Stretch]:
    found: list[Stretch] = []
    for one in sorted(stretches, key=lambda one: one.first_id):
        if found and one.first_id <= found[-1].last_id:
            found[-1] = found[-1].joined(one)
        else:
            found.append(one)
    return found


def _windows(
    files: list[ArchivedFile], bounds: Mapping[LogKey, Bounds], target_bytes: int
) -> Iterator[tuple[dict[LogKey, Bounds], list[Split]]]:
    """Yield bounds that follow each other, and the splits of the files that reach into them."""
    files = sorted(files, key=lambda file: min(part.first_id for _, part in file.parts))
    low = {name: each.low for name, each in bounds.items()}
    reached = dict(low)
    size_bytes = 0
    for number, file in enumerate(files):
        size_bytes += file.info.size_bytes
        for name, part in file.parts:
            if name in bounds:
                reached[name] = min(bounds[name].high, max(reached[name], part.last_id))
        is_last = number + 1 == len(files)
        if size_bytes >= target_bytes or is_last:
            # All names of an nsqd end at the same message.
            ends = {each.log: max(reached[name] for name in bounds if bounds[name].log == each.log) for each in bounds.values()}
            window = {name: Bounds(log, low[name], high if is_last else ends[log]) for name, (log, _, high) in bounds.items()}
            inside = [
                file.info for file in files if any(window[name].overlap(part) for name, part in file.parts if name in window)
            ]
            yield window, plan_splits(inside, END_OF_IDS)
            low = {name: each.high for name, each in window.items()}
            reached, size_bytes = dict(low), 0


# ---- what files have


class _KnownFiles:
    """What the files of an archive have: as the manifest says, or as they were read once."""

    def __init__(self, options: ReadOptions, remembered_at: str) -> None:
        self._options = options
        self._path = Path(remembered_at) if remembered_at else None
        self._read: dict[str, list[tuple[str, NsqdPart]]] = {}
        if self._path is not None:
            with suppress(OSError):
                for line in self._path.read_bytes().splitlines():
                    with suppress(ValueError, TypeError):  # of a process that was killed
                        key, parts = json.loads(line)
                        self._read[key] = [(topic, NsqdPart(*part)) for topic, part in parts]

    def files(self) -> Iterator[ArchivedFile]:
        """Yield the files with messages of wanted topics. Raises ArchiveError."""
        options = self._options
        manifests = Manifests(options.storage)
        others: list[Entry] = []
        for entry in entries(options.paths, options.storage, options.hints):
            parts = manifests.complete(entry)
            if parts and not any(options.wanted.has_topic(part.topic) for part in parts):
                continue
            if parts and all(part.nsqds for part in parts):
                info = FileInfo(*entry, parts[0].format, parts[0].compression, parts[0].topic)
                named = [(LogKey(part.topic, nsqd.nsqd), nsqd) for part in parts for nsqd in part.nsqds]
                yield ArchivedFile(info, named)
            else:
                others.append(entry)
        if others:
            yield from self._others(others)

    def _others(self, others: list[Entry]) -> Iterator[ArchivedFile]:
        options, report_s = self._options, time.monotonic() + _REPORT_EVERY_S
        infos = survey([entry.path for entry in others], options.storage, options.hints, options.wanted).files
        for number, info in enumerate(infos):
            if not info.may_hold(options.wanted):
                continue
            key = f"{info.size_bytes}:{info.modified_ns}:{info.path}"
            if key not in self._read:
                self._remember(key, info)
            if time.monotonic() >= report_s:
                _log.warning("nsq: reading files that no manifest describes, once: %d of %d", number + 1, len(infos))
                report_s = time.monotonic() + _REPORT_EVERY_S
            yield ArchivedFile(info, [(LogKey(topic, part.nsqd), part) for topic, part in self._read[key]])

    def _remember(self, key: str, info: FileInfo) -> None:
        by_name: dict[LogKey, list[Numbers]] = {}
        for name, ids in _ids_in([info], self._options):
            by_name.setdefault(name, []).append(ids)
        found = []
        for (topic, nsqd), pieces in by_name.items():
            ids = np.concatenate(pieces)
            is_ordered = bool((ids[1:] > ids[:-1]).all())
            count = len(ids) if is_ordered else len(np.unique(ids))
            found.append((topic, NsqdPart(nsqd, int(ids.min()), int(ids.max()), count, is_ordered)))
        self._read[key] = found
        if self._path is not None:
            with suppress(OSError):  # it is read again by the next process
                os.makedirs(self._path.parent, exist_ok=True)
                with self._path.open("a") as file:
                    file.write(f"{json.dumps([key, found])}\n")


def _ids_in(infos: list[FileInfo], options: ReadOptions) -> Iterator[tuple[LogKey, Numbers]]:
    """Yield the ids in files by topic and nsqd, a chunk after the other. Raises ArchiveError."""
    damage = Damage("skip" if options.skip_damaged else "fail")
    for split in plan_splits(infos, wanted=options.wanted):
        for chunk in read(split, options.storage, options.wanted, damage):
            yield from ((LogKey(chunk.topic, nsqd), ids) for nsqd, _, ids in _by_nsqd(chunk))


def _first_of_each(ids: Numbers) -> Numbers:
    """Return a mask of the ids that no equal one precedes."""
    mask = np.zeros(len(ids), dtype=bool)
    mask[np.unique(ids, return_index=True)[1]] = True
    return mask


def _by_nsqd(chunk: Chunk) -> list[tuple[str, Any, Numbers]]:
    """Return nsqds, their rows, and the ids of these. Raises ArchiveError if the file does not say."""
    nsqds, texts = chunk.nsqds, chunk.ids
    if nsqds is None or texts is None or (not isinstance(nsqds, str) and nsqds.null_count):
        raise ArchiveError(
            f"nsq: {chunk.file} does not say which message is of which nsqd, which a query on an archive and a log needs: "
            "nsq-to-file writes that with --format=jsonl, framed or parquet"
        )
    try:
        ids = np.frombuffer(bytes.fromhex("".join(texts.to_pylist())), ">u8").astype(np.int64)
        are_ids = len(ids) == chunk.count and bool(ids.min() >= 0)
    except (ValueError, TypeError):
        are_ids = False
    if not are_ids:
        raise ArchiveError(f"nsq: {chunk.file} has messages whose ids are not 16 hex characters")
    if isinstance(nsqds, str):
        return [(nsqds, slice(None), ids)]
    codes = nsqds.indices.to_numpy(zero_copy_only=False)
    names = pa.array(nsqds.dictionary).to_pylist()
    return [(names[int(code)], codes == code, ids[codes == code]) for code in np.unique(codes)]
