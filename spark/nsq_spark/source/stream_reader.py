"""The stream reader: an archive that grows, batch after batch, each message in exactly one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from nsq_spark.archive.damage import ArchiveError, Damage
from nsq_spark.archive.listing import find, recognised
from nsq_spark.archive.sidecars import Topic, channels_in, chosen_channels
from nsq_spark.archive.splits import FileInfo
from nsq_spark.archive.storage import Entry, name_of
from nsq_spark.source.batch_reader import ArchivePartition, partitions_of, read_partition, read_piece
from nsq_spark.source.offsets import FINISHED, NOTHING, Offset, Portion, is_byte_mark, moment_of, next_byte
from nsq_spark.source.options import ReadOptions, StreamOptions, split_bytes
from nsq_spark.source.portions import Room, can_grow, default_limit, packed, pieces_of, readable_until, size_of
from nsqd_py.diskqueue.files import parse_log_file_name

# New files are opened in groups of this size, which is faster if they are remote.
_AT_ONCE = 32


class NsqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("nsq")`. Reads the oldest files first.

    On the driver one object lives as long as the query, and remembers what it saw, to open files only once.
    """

    def __init__(self, options: ReadOptions, limits: StreamOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._limits = limits
        self._columns = columns
        self._target: list[Entry] | None = None
        self._target_of_live: dict[str, int] = {}
        self._channels: dict[Topic, str] | None = None
        self._infos: dict[str, FileInfo] = {}
        self._nothing_new: dict[str, Entry] = {}

    # ---- how far

    def initialOffset(self) -> dict[str, Any]:
        return Offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._limits)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._find()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raises ArchiveError, BadOffset."""
        offset = Offset.of_json(start)
        there = self._find() if self._target is None else self._target
        self._forget(there)
        open_files = sorted((entry for entry in there if self._may_have_news(entry, offset)), key=moment_of)
        room = Room.of(limit, self._limits)
        batch: list[Portion] = []
        waiting: list[Entry] = []
        for entry, portion in self._portions(open_files, offset):
            taken = None if room.is_full else room.admit(portion, self._infos[portion.path], self._count)
            if taken is not None:
                batch.append(taken)
            if taken != portion:
                waiting.append(entry)
                break
        if not batch:
            return start
        return offset.advanced(batch, there, waiting, self._limits.max_file_age_ns).to_json()

    def _forget(self, there: list[Entry]) -> None:
        """Forget what is known of files that are done, or gone."""
        self._infos.clear()
        self._nothing_new = {entry.path: entry for entry in there if self._nothing_new.get(entry.path) == entry}

    def _find(self) -> list[Entry]:
        entries = find(self._options.paths, self._options.storage, may_be_empty=True).entries
        if self._options.hints.go_channel is None:
            for (directory, topic), channels in channels_in(entries).items():
                if len(channels) > 1:
                    raise ArchiveError(
                        f"nsq: {directory} has queues of several channels of topic {topic}, with copies of its "
                        f"messages: option goChannel says which is read ({', '.join(sorted(channels))}), or all"
                    )
        self._channels = chosen_channels(entries, self._options.hints.go_channel)
        return entries

    def _recognised(self, entries: list[Entry]) -> list[FileInfo]:
        if self._channels is None:  # a batch that was interrupted comes before all else
            self._find()
        return recognised(entries, self._options.storage, self._options.hints, self._channels)

    def _may_have_news(self, entry: Entry, offset: Offset) -> bool:
        return not _is_at_end(offset.mark_of(entry), entry) and self._nothing_new.get(entry.path) != entry

    def _portions(self, entries: list[Entry], offset: Offset) -> Iterator[tuple[Entry, Portion]]:
        """Yield what can be read of the files, oldest first, without those of other topics."""
        remaining = iter(entries)
        while some := list(islice(remaining, _AT_ONCE)):
            infos = {info.path: info for info in self._recognised(some)}
            self._infos.update(infos)
            for entry in some:
                portion = self._portion(infos.get(entry.path), offset.mark_of(entry))
                if portion is None:
                    self._nothing_new[entry.path] = entry
                else:
                    yield entry, portion

    def _portion(self, info: FileInfo | None, mark: int | None) -> Portion | None:
        if info is None or not info.may_hold(self._options.wanted):
            return None
        after = NOTHING if mark is None else mark
        until = readable_until(info, after, self._options.storage) if can_grow(info) else FINISHED
        if self._target is not None and info.is_live and until is not None:
            until = self._target_of_live.setdefault(info.path, until)  # it grows without being larger
        return None if until is None or until <= after else Portion(info.path, info.size_bytes, after, until)

    def _count(self, portion: Portion, most: int) -> tuple[int, int]:
        """Count the messages of a portion, up to `most`; return also the position of the last."""
        options = self._options
        count = 0
        info = self._infos[portion.path]
        for piece in pieces_of(portion, info, info.size_bytes):
            for chunk in read_piece(piece, options.storage, options.wanted, Damage("skip")):
                if count + chunk.count >= most:
                    return most, int(chunk.positions[most - count - 1])
                count += chunk.count
        return count, portion.until

    # ---- what is read

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[ArchivePartition]:
        """Raises ArchiveError, BadOffset."""
        if start == end:
            return []
        batch = Offset.of_json(end).batch
        infos = self._infos_of(batch)
        portions = [portion for portion in batch if portion.path in infos]
        total_bytes = sum(size_of(portion, infos[portion.path]) for portion in portions)
        groups = packed(portions, infos, split_bytes(self._options.split_bytes, total_bytes))
        return partitions_of(groups, self._options, self._columns)

    def _infos_of(self, batch: tuple[Portion, ...]) -> dict[str, FileInfo]:
        """Return the files of a batch. They are known, except for a batch that was interrupted before a restart."""
        unknown = [Entry(portion.path, portion.size_bytes, 0) for portion in batch if portion.path not in self._infos]
        found = {info.path: info for info in self._recognised(unknown)}
        gone = [entry.path for entry in unknown if entry.path not in found and not _is_topic_log(entry.path)]
        if gone:
            raise ArchiveError(f"nsq: {gone[0]} is gone, but the batch that was interrupted has to read it again")
        return {portion.path: found.get(portion.path) or self._infos[portion.path] for portion in batch}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ArchivePartition)
        return read_partition(partition)


def _is_at_end(mark: int | None, entry: Entry) -> bool:
    if mark is None or mark == FINISHED:
        return mark == FINISHED
    return is_byte_mark(mark) and next_byte(mark) >= entry.size_bytes


def _is_topic_log(path: str) -> bool:
    """True for a file that nsqd drops when all its messages are finished."""
    return parse_log_file_name(name_of(path)) is not None
