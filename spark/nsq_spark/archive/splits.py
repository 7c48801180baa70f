"""Formats of files, the parts of them that tasks read, the messages that are requested, and what is done about damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np

from nsqd_py.settings.regex import BadExpression, compiled
from nsqd_py.stores.formats import Format as Format

Numbers = np.ndarray[Any, np.dtype[Any]]
# Of topics, columns or servers.
Names: TypeAlias = tuple[str, ...]
# The bounds of times, bytes or ids.
Span: TypeAlias = tuple[int, int]
Policy = Literal["fail", "skip"]
# Such files are compressed as a whole; others compress parts of themselves.
LINE_FORMATS = (Format.LINES, Format.JSONL)
DEFAULT_SPLIT_BYTES = 64 * 1024 * 1024
# Opening a file costs as much as reading this many bytes: many small files must not seem to be free.
OPEN_COST_BYTES = 256 * 1024


class ArchiveError(Exception):
    """A file cannot be found, opened, or understood."""


class NotThere(ArchiveError):
    """A path does not exist, or matches no file."""


class Gone(ArchiveError):
    """A file that was found is not there any more."""


class DamagedArchive(ArchiveError):
    """Bytes of a file that are no message; `position` is the first of them, in the decompressed file."""

    def __init__(self, path: str, position: int, what: str) -> None:
        super().__init__(path, position, what)
        self.path = path
        self.position = position
        self.what = what

    def __str__(self) -> str:
        return (
            f"{self.path} is damaged at {self.position}: {self.what}; --skip-damaged reads what is left of it"
        )


def first_line(error: BaseException) -> str:
    """Return what an error of pyarrow says, without what it adds on further lines."""
    return str(error).partition("\n")[0]


@dataclass(slots=True)
class Skipped:
    """The bytes and records that were skipped in one file. A range of damage counts as one record, whatever it held."""

    records: int = 0
    size_bytes: int = 0


class Damage:
    """Collects the damage that readers find: `counts` of what was skipped, by path."""

    def __init__(self, policy: Policy = "fail") -> None:
        self.policy = policy
        self.counts: dict[str, Skipped] = {}

    def found(self, path: str, start: int, end: int, what: str, *, is_unfinished: bool = False) -> None:
        """Report bytes `start` to `end` (not included) that are no message; with `is_unfinished`, not yet.

        Raises DamagedArchive unless skipping, or unfinished.
        """
        if self.policy == "fail" and not is_unfinished:
            raise DamagedArchive(path, start, what)
        self.add({path: Skipped(1, max(0, end - start))})

    def add(self, counts: dict[str, Skipped]) -> None:
        """Add what another reader counted."""
        for path, other in counts.items():
            skipped = self.counts.setdefault(path, Skipped())
            skipped.records += other.records
            skipped.size_bytes += other.size_bytes


@dataclass(frozen=True, slots=True)
class Requested:
    """Topics by name or by pattern (a regular expression of RE2 that matches anywhere, as in Go); none: all topics.

    start_ns, end_ns  published at or after, and before, in ns since the epoch. A message whose time is not known
                      is not in any range; files of `lines` are chosen by their times in the manifest, or in their names.
    columns           the columns of `nsq_spark.schema` that are used; None: all. Readers may leave out what others store, and
                      then find no damage in it
    """

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    columns: frozenset[str] | None = None

    @property
    def has_range(self) -> bool:
        return self.start_ns is not None or self.end_ns is not None

    @property
    def needs_times(self) -> bool:
        return (
            self.has_range
            or self.columns is None
            or not self.columns.isdisjoint(("timestamp", "timestamp_ns"))
        )

    @property
    def needs_bodies(self) -> bool:
        return self.columns is None or not self.columns.isdisjoint(("body", "text"))

    @property
    def needs_topics(self) -> bool:
        has_choice = self.topics is not None or self.topic_pattern is not None
        return has_choice or self.columns is None or "topic" in self.columns

    def has_topic(self, topic: str) -> bool:
        """Raises ArchiveError for a pattern that is none."""
        if topic in (self.topics or ()):
            return True
        if self.topic_pattern is None:
            return self.topics is None
        return _search(self.topic_pattern)(topic) is not None

    def overlaps(self, first_ns: Any, last_ns: Any) -> Any:
        """True if a message published between these two, both included, may be requested. If they are arrays of numpy, and a
        range of time is requested: a mask of where that is so.
        """
        is_early_enough = self.end_ns is None or first_ns < self.end_ns
        return is_early_enough & (self.start_ns is None or last_ns >= self.start_ns)


@lru_cache(maxsize=16)
def _search(pattern: str) -> Callable[[str], object]:
    try:
        found: Callable[[str], object] = compiled(pattern).search
    except BadExpression as error:
        raise ArchiveError(f"the topic pattern {pattern!r} is no regular expression: {error}") from None
    return found


class Compression(StrEnum):
    """The compression of a whole file, by the names of `nsqd_py.stores.compression`."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file that holds messages.

    topic           of all messages, if the format has one topic a file; else of messages that do not have theirs;
                    "" if its name fits several
    is_live         a program may be writing to the file: an incomplete message at its end is not damage
    first_ns, end_ns  times of its messages, if its format stores none (`lines`): not before, and before
    has_time_of_name  these are the hour in its name, since no manifest has them
    is_described    the manifest of nsq-to-file describes all of it
    is_guessed      only its name says the topic
    is_unwanted     nothing in it is requested: the manifest of nsq-to-file says so, or the topics that its name may mean
    nsqd            of a file in a store: the address of the nsqd whose log it is; the positions of its messages are then their
                    sequence numbers
    numbers         the sequence numbers that count, if the file has others too, which are in other files
    """

    path: str
    size_bytes: int
    modified_ns: int
    format: Format
    compression: Compression = Compression.NONE
    topic: str = ""
    is_live: bool = False
    first_ns: int | None = None
    end_ns: int | None = None
    has_time_of_name: bool = False
    is_described: bool = False
    is_guessed: bool = False
    is_unwanted: bool = False
    nsqd: str = ""
    numbers: Span | None = None

    @property
    def has_one_topic(self) -> bool:
        """True if `topic` is that of all messages."""
        return self.format in (Format.LINES, Format.TOPIC_LOG)

    def may_hold(self, requested: Requested) -> bool:
        """True if a message in it may be requested. Raises ArchiveError if a time is requested and the file has none."""
        if self.is_unwanted or (self.has_one_topic and not requested.has_topic(self.topic)):
            return False
        if self.format.has_timestamps or not requested.has_range:
            return True
        if self.first_ns is None or self.end_ns is None:
            raise ArchiveError(
                f"{self.path}: files of lines keep no times, and its name has no hour such as 2024-01-31_13"
            )
        return bool(requested.overlaps(self.first_ns, self.end_ns - 1))


@dataclass(frozen=True, slots=True)
class Split:
    """The records, lines or row groups of a file that begin at `start` or behind it, and before `end`.

    index  its number in the plan

    The rest is as in FileInfo; `file_bytes` is the size that the file had.
    """

    path: str
    format: Format
    compression: Compression
    start: int
    end: int
    topic: str
    file_bytes: int
    index: int
    is_live: bool = False
    is_guessed: bool = False
    nsqd: str = ""
    numbers: Span | None = None

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def is_first(self) -> bool:
        """True if it begins where its file does; it then reports damage there."""
        return self.start == 0


def plan_splits(
    files: Iterable[FileInfo], target_bytes: int = DEFAULT_SPLIT_BYTES, requested: Requested | None = None
) -> list[Split]:
    """Return splits of about `target_bytes`, in order of files and positions; none of files that hold nothing requested.

    Raises ArchiveError if a time is requested and neither a file nor its name has one.
    """
    splits: list[Split] = []
    for info in files:
        if requested is not None and not info.may_hold(requested):
            continue
        # Equal parts, so that none is left over that is hardly worth a task.
        count = max(1, round(info.size_bytes / max(1, target_bytes)))
        if info.compression is not Compression.NONE:
            count = 1
        for start, end in pairwise(info.size_bytes * part // count for part in range(count + 1)):
            splits.append(
                Split(
                    info.path,
                    info.format,
                    info.compression,
                    start,
                    end,
                    info.topic,
                    info.size_bytes,
                    len(splits),
                    info.is_live,
                    info.is_guessed,
                    info.nsqd,
                    info.numbers,
                )
            )
    return splits


def pack(splits: Sequence[Split], target_bytes: int = DEFAULT_SPLIT_BYTES) -> list[list[Split]]:
    """Return a group of splits for each task, as near to `target_bytes` as splits allow, in the order of the plan."""
    groups: list[list[Split]] = []
    room = 0
    for split in splits:
        cost = split.size_bytes + OPEN_COST_BYTES
        if not groups or cost > 2 * room:
            groups.append([])
            room = max(target_bytes, OPEN_COST_BYTES)
        groups[-1].append(split)
        room -= cost
    return groups
