"""How much of what is there goes into the next batch. Pure; who counts messages is an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

from nsq_spark.archive.formats import Format
from nsq_spark.archive.splits import FileInfo
from nsq_spark.source.offsets import FINISHED, NOTHING, Portion, byte_mark, is_byte_mark, next_byte
from nsq_spark.source.options import StreamOptions

# Counts the messages of a portion up to a limit: (how many, position of the last), or less than the limit: all.
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
        """As much of it as there is room for. None: it has to wait. What cannot be cut is let in if it is the first."""
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
    """The one that Spark is told of; the others hold too."""
    if options.max_rows is not None:
        return ReadMaxRows(options.max_rows)
    if options.max_bytes is not None:
        return ReadMaxBytes(options.max_bytes)
    return ReadMaxFiles(options.max_files) if options.max_files is not None else ReadAllAvailable()


def has_byte_positions(info: FileInfo) -> bool:
    """Whether it can be read up to any byte: a position says at which one a message begins."""
    return info.can_be_split and info.format is not Format.PARQUET


def begin_of(portion: Portion, info: FileInfo) -> int:
    """The byte where reading begins."""
    if portion.after == NOTHING or not has_byte_positions(info):
        return info.start
    return next_byte(portion.after)


def end_of(portion: Portion, info: FileInfo) -> int:
    """The byte before which all begins that is read."""
    if portion.until == FINISHED or not has_byte_positions(info):
        return portion.size_bytes
    if is_byte_mark(portion.until):
        return min(portion.size_bytes, next_byte(portion.until))
    return next_byte(portion.until) + 1


def size_of(portion: Portion, info: FileInfo) -> int:
    return end_of(portion, info) - begin_of(portion, info)
