"""The archive as the part of logs that nsqds have dropped: which message ids it has, and in which files.

The rule of the hand-over: a message is read from the log of its nsqd if that keeps it, otherwise from the archive. In a log,
ids rise with the numbers. So messages `low` to `high` of a log are those of the archive whose ids are between the ids of
these two, and there are `high - low` of them: if there are fewer, the archive has a hole, or does not have them yet.

Messages that no log has numbers for (of nsqds that are gone, and of topics before they were deleted and created again) are read
by their ids alone. The archive may have a message twice, since nsq-to-file writes at least once; one of them is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.listing import survey
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import ArchiveError, Damage, Numbers, Split, pack, plan_splits
from nsq_spark.source.batch_reader import ArchivePartition
from nsq_spark.source.live_options import LogKey
from nsq_spark.source.options import ReadOptions, split_bytes

# Ids are found in memory, with up to 60 bytes each.
_MOST_IDS = 50_000_000
END_OF_IDS = 2**63 - 1

# Ids from the first one on, and before the second one, by topic and nsqd as the archive has it.
Bounds = Mapping[LogKey, Sequence[tuple[int, int]]]


class _Found(NamedTuple):
    """Messages of one topic and nsqd in a split."""

    split: int
    ids: Numbers
    positions: Numbers


@dataclass(repr=False)
class HistoryPartition(ArchivePartition):
    """Messages with some ids, without those at `repeated` positions of files."""

    bounds: Bounds = field(default_factory=dict)
    repeated: Mapping[str, Numbers] = field(default_factory=dict)

    def chosen(self, chunk: Chunk) -> Chunk:
        mask = np.zeros(chunk.count, dtype=bool)
        for nsqd, rows, ids in _by_nsqd(chunk):
            for low, high in self.bounds.get(LogKey(chunk.topic, nsqd), ()):
                mask[rows] |= (ids >= low) & (ids < high)
        repeated = self.repeated.get(chunk.file)
        return chunk.filter(mask if repeated is None else mask & ~np.isin(chunk.positions, repeated))


class History:
    """The ids in an archive. It is read when they are needed, once, unless they are not enough.

    `owners` returns the logs of topics and nsqds of the archive, by the greatest id of each.
    """

    def __init__(self, options: ReadOptions, owners: Callable[[Mapping[LogKey, int]], Mapping[LogKey, LogKey]]) -> None:
        self._options = options
        self._owners_of = owners
        self._ids: dict[LogKey, Numbers] | None = None
        self._owners: Mapping[LogKey, LogKey] = {}
        self._splits: list[Split] = []
        self._spans: list[tuple[int, LogKey, int, int]] = []
        self._repeated: dict[str, Numbers] = {}

    def forget(self) -> None:
        """Look for new files when ids are needed again."""
        self._ids = None

    def ids(self, log: LogKey, low: int = 0, high: int = END_OF_IDS) -> Numbers:
        """Return the ids from `low` on and before `high`, in order, each once. Raises ArchiveError."""
        ids = self.load().get(log, np.zeros(0, np.int64))
        return np.asarray(ids[np.searchsorted(ids, low) : np.searchsorted(ids, high)])

    def at_least(self, count: int, log: LogKey, low: int, high: int) -> Numbers:
        """Return these ids; if there are fewer than `count`, look for new files first. Raises ArchiveError."""
        if len(self.ids(log, low, high)) < count:
            self.forget()
        return self.ids(log, low, high)

    def partitions(self, bounds: Bounds, columns: tuple[str, ...]) -> list[InputPartition]:
        """Return the partitions that read these ids, by log. Raises ArchiveError."""
        if not bounds:
            return []
        self.load()
        by_name = {name: bounds[log] for name, log in self._owners.items() if log in bounds}
        wanted = {
            number
            for number, name, first, last in self._spans
            if any(low <= last and first < high for low, high in by_name.get(name, ()))
        }
        splits = [self._splits[number] for number in sorted(wanted)]
        target_bytes = split_bytes(self._options.split_bytes, sum(split.size_bytes for split in splits))
        return [
            HistoryPartition(
                self._options, columns, group, by_name, {path: self._repeated[path] for path in paths & set(self._repeated)}
            )
            for group in pack(splits, target_bytes)
            for paths in [{split.path for split in group}]
        ]

    # ---- what there is

    def load(self) -> dict[LogKey, Numbers]:
        """Return the ids of each log that the archive has messages of. Raises ArchiveError."""
        if self._ids is None:
            found = self._found()
            newest = {name: max(int(part.ids.max()) for part in parts) for name, parts in found.items()}
            self._owners = self._owners_of(newest)
            self._spans = [
                (part.split, name, int(part.ids.min()), int(part.ids.max())) for name, parts in found.items() for part in parts
            ]
            by_log: dict[LogKey, list[_Found]] = {}
            for name, parts in found.items():
                by_log.setdefault(self._owners[name], []).extend(parts)
            self._repeated = {}
            self._ids = {log: self._each_once(parts) for log, parts in by_log.items()}
        return self._ids

    def _found(self) -> dict[LogKey, list[_Found]]:
        options, found, count = self._options, dict[LogKey, list[_Found]](), 0
        files = survey(options.paths, options.storage, options.hints, options.wanted).files
        target_bytes = split_bytes(options.split_bytes, sum(info.size_bytes for info in files))
        self._splits = plan_splits(files, target_bytes, options.wanted)
        for number, split in enumerate(self._splits):
            for chunk in read(split, options.storage, options.wanted, Damage("skip" if options.skip_damaged else "fail")):
                for nsqd, rows, ids in _by_nsqd(chunk):
                    found.setdefault(LogKey(chunk.topic, nsqd), []).append(_Found(number, ids, chunk.positions[rows]))
                count += chunk.count
                if count > _MOST_IDS:
                    raise ArchiveError(f"nsq: the archive has more than {_MOST_IDS} messages: name fewer topics or files")
        return found

    def _each_once(self, parts: Sequence[_Found]) -> Numbers:
        """Return the ids in order, and note where the repeated ones are."""
        ids = np.concatenate([part.ids for part in parts])
        order = np.argsort(ids, kind="stable")
        is_repeated = np.append(False, np.diff(ids[order]) == 0)
        again = np.zeros(len(ids), dtype=bool)
        again[order[is_repeated]] = True
        first = 0
        for part in parts:
            positions = part.positions[again[first : first + len(part.ids)]]
            first += len(part.ids)
            if len(positions):
                path = self._splits[part.split].path
                self._repeated[path] = np.append(self._repeated.get(path, positions[:0]), positions)
        return np.asarray(ids[order[~is_repeated]])


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
