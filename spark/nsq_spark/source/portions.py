"""Plans how much of which file the next batch of a stream reads, and which tasks read it.

A file that may still grow is read up to its last whole message. What counts messages is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

from nsq_spark.archive.damage import Damage
from nsq_spark.archive.formats import Compression, Format
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import FileInfo, pack, plan_splits
from nsq_spark.archive.storage import Storage
from nsq_spark.source.batch_reader import Piece
from nsq_spark.source.offsets import FINISHED, NOTHING, Portion, byte_mark, is_byte_mark, next_byte
from nsq_spark.source.options import StreamOptions

# ---- how much is admitted

# Counts the messages of a portion up to a limit; returns their number, and the position of the last one.
Count = Callable[[Portion, int], tuple[int, int]]


@dataclass(slots=True)
class Room:
    """What a batch may still have; None is any number."""

    files: int | None = None
    size_bytes: int | None = None
    messages: int | None = None
    is_full: bool = False
    is_empty: bool = True

    @classmethod
    def of(cls, limit: ReadLimit, options: StreamOptions) -> Room:
        """`ReadAllAvailable` goes before all options; another limit comes with them."""
        if isinstance(limit, ReadAllAvailable):
            return cls()
        room = cls(options.max_files, options.max_bytes, options.max_rows)
        if isinstance(limit, ReadMaxFiles):
            room.files = limit.max_files
        elif isinstance(limit, ReadMaxBytes):
            room.size_bytes = limit.max_bytes
        elif isinstance(limit, ReadMaxRows):
            room.messages = limit.max_rows
        return room

    def admit(self, portion: Portion, info: FileInfo, count: Count) -> Portion | None:
        """Return as much of a portion as there is room for; None if it has to wait. The first portion of a batch is
        admitted as a whole if it cannot be cut.
        """
        taken = self._within_bytes(portion, info)
        if taken is None:
            self.is_full = True
            return None
        if self.messages is not None:
            taken = self._within_messages(taken, count)
        if self.files is not None:
            self.files -= 1
            self.is_full = self.is_full or self.files <= 0
        self.is_empty = False
        return taken

    def _within_bytes(self, portion: Portion, info: FileInfo) -> Portion | None:
        if self.size_bytes is None:
            return portion
        size = size_of(portion, info)
        if size < self.size_bytes:
            self.size_bytes -= size
            return portion
        if size > self.size_bytes and not has_byte_positions(info) and not self.is_empty:
            return None
        self.is_full = True
        if size == self.size_bytes or not has_byte_positions(info):
            return portion
        return portion._replace(until=byte_mark(begin_of(portion, info) + self.size_bytes))

    def _within_messages(self, portion: Portion, count: Count) -> Portion:
        assert self.messages is not None
        found, last = count(portion, self.messages)
        if found < self.messages:
            self.messages -= found
            return portion
        self.is_full = True
        return portion._replace(until=last)


def default_limit(options: StreamOptions) -> ReadLimit:
    """Return the limit that Spark is told of; the others apply too."""
    if options.max_rows is not None:
        return ReadMaxRows(options.max_rows)
    if options.max_bytes is not None:
        return ReadMaxBytes(options.max_bytes)
    return ReadMaxFiles(options.max_files) if options.max_files is not None else ReadAllAvailable()


def has_byte_positions(info: FileInfo) -> bool:
    """True if the file can be read up to any byte: a position says at which one a message begins."""
    return info.can_be_split and info.format is not Format.PARQUET


def begin_of(portion: Portion, info: FileInfo) -> int:
    """Return the byte where reading begins."""
    if portion.after == NOTHING or not has_byte_positions(info):
        return info.start
    return next_byte(portion.after)


def end_of(portion: Portion, info: FileInfo) -> int:
    """Return the byte before which everything begins that is read."""
    if portion.until == FINISHED or not has_byte_positions(info):
        return portion.size_bytes
    if is_byte_mark(portion.until):
        return min(portion.size_bytes, next_byte(portion.until))
    return next_byte(portion.until) + 1


def size_of(portion: Portion, info: FileInfo) -> int:
    return end_of(portion, info) - begin_of(portion, info)


# ---- pieces for tasks


def pieces_of(portion: Portion, info: FileInfo, target_bytes: int) -> list[Piece]:
    """Return the pieces that a portion is read in: always the same, as long as the file has what it had, or more."""
    begin, end = begin_of(portion, info), end_of(portion, info)
    if info.format is Format.GO_QUEUE and portion.after != NOTHING:
        begin = next_byte(portion.after)  # it can only be read from where a message begins; this is such a place
    has_bytes = has_byte_positions(info)
    until = None if portion.until == FINISHED or (has_bytes and is_byte_mark(portion.until)) else portion.until
    splits = plan_splits([replace(info, start=begin, size_bytes=end)], target_bytes)
    # Where reading ends with a message, what follows is looked at when reading goes on; else now.
    file_bytes = end if has_bytes and until is not None else portion.size_bytes
    return [Piece(replace(split, file_bytes=file_bytes, after=portion.after), until) for split in splits]


def packed(portions: Sequence[Portion], infos: Mapping[str, FileInfo], target_bytes: int) -> Iterator[list[Piece]]:
    """Yield the pieces of each task."""
    pieces = [piece for portion in portions for piece in pieces_of(portion, infos[portion.path], target_bytes)]
    splits = [replace(piece.split, index=index) for index, piece in enumerate(pieces)]
    for group in pack(splits, target_bytes=target_bytes):
        yield [pieces[split.index] for split in group]


# ---- the end of a file that may still grow

_FIRST_LOOK_BYTES = 1024 * 1024
_STEP = 4


def can_grow(info: FileInfo) -> bool:
    """True unless files of this kind appear only when they are complete."""
    return info.compression is Compression.NONE and info.format is not Format.PARQUET


def readable_until(info: FileInfo, after: int, storage: Storage) -> int | None:
    """Return the mark up to which a file can be read now; None if that is not above `after`.

    It is a byte mark if the file ends with a whole message, else that of its last whole one: a message that is being
    written is left for later. Raises ArchiveError.
    """
    begin = next_byte(after) if after != NOTHING else info.start
    if begin >= info.size_bytes and not info.is_live:
        return None
    last, is_torn = NOTHING, False
    for start in _starts(info, begin):
        last, is_torn = _last_from(info, start, storage)
        if last != NOTHING:
            break
    if info.format in (Format.LINES, Format.JSONL):  # else a last line that is no JSON would seem to be torn
        with storage.open(info.path) as file:
            is_torn = file.read_at(info.size_bytes - 1, 1) != b"\n"
    until = last if is_torn or info.is_live else byte_mark(info.size_bytes)
    return until if until > after else None


def _starts(info: FileInfo, begin: int) -> Iterator[int]:
    """Yield where to begin to look for the last message: near the end, unless a live file may have space there."""
    size = _FIRST_LOOK_BYTES
    while info.can_be_split and not info.is_live and info.size_bytes - size > begin:
        yield info.size_bytes - size
        size *= _STEP
    yield begin


def _last_from(info: FileInfo, start: int, storage: Storage) -> tuple[int, bool]:
    """Return the position of the last message from a byte on, and True if the file ends with something else."""
    damage = Damage("skip")
    last = NOTHING
    for split in plan_splits([replace(info, start=start)], info.size_bytes):
        for chunk in read(split, storage, damage=damage):
            last = int(chunk.positions[-1])
    return last, any(finding.position + finding.bytes >= info.size_bytes for finding in damage.findings)
