"""Plans which reader reads which part of which file: pure arithmetic on what listing found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nsq_spark.archive.damage import ArchiveError
from nsq_spark.archive.formats import Compression, Format
from nsq_spark.archive.wanted import Wanted

DEFAULT_SPLIT_BYTES = 64 * 1024 * 1024
# Opening a file costs as much as reading so many bytes: many small files must not seem to be free.
OPEN_COST_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file that holds messages.

    topic, channel  of all messages, if the format has one topic a file; else of those messages that do not tell theirs
    start           where reading begins: not 0 if only what is unread is wanted
    is_live         nsqd may be writing to the file: an incomplete message at its end is not damage
    settled_bytes   but what is before this was complete once, if the file is live (Go's disk queues)
    first_ns, end_ns  the time in its name, if its format stores none (`lines`): not before, and before
    is_unwanted     the manifest of nsq-to-file says that nothing in it is wanted; `topic` is the manifest's
    """

    path: str
    size_bytes: int
    modified_ns: int
    format: Format
    compression: Compression = Compression.NONE
    topic: str = ""
    channel: str | None = None
    start: int = 0
    is_live: bool = False
    settled_bytes: int = 0
    first_ns: int | None = None
    end_ns: int | None = None
    is_unwanted: bool = False

    @property
    def can_be_split(self) -> bool:
        return self.format.can_be_split and self.compression is Compression.NONE

    @property
    def has_one_topic(self) -> bool:
        """True if `topic` is that of all messages."""
        return self.format in (Format.LINES, Format.TOPIC_LOG, Format.GO_QUEUE)

    def may_hold(self, wanted: Wanted) -> bool:
        """True if a message in it may be wanted. Raises ArchiveError if a time is wanted and the file has none."""
        if self.is_unwanted or (self.has_one_topic and not wanted.has_topic(self.topic)):
            return False
        if self.format.has_timestamps or not wanted.has_range:
            return True
        if self.first_ns is None or self.end_ns is None:
            raise ArchiveError(
                f"{self.path} keeps no times, since its format is lines, and there is no hour such as 2024-01-31_13 in "
                "its name: read it without a start and an end time"
            )
        return wanted.overlaps(self.first_ns, self.end_ns - 1)


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
    channel: str | None
    file_bytes: int
    index: int
    is_live: bool = False
    settled_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def is_first(self) -> bool:
        """True if it begins where its file does; it then reports damage there."""
        return self.start == 0

    def of_plain(self, size_bytes: int) -> Split:
        """Return the split of all of the decompressed file."""
        return replace(self, compression=Compression.NONE, end=size_bytes, file_bytes=size_bytes)


def plan_splits(files: Iterable[FileInfo], target_bytes: int = DEFAULT_SPLIT_BYTES, wanted: Wanted | None = None) -> list[Split]:
    """Return splits of about `target_bytes`, in order of files and places; none of files that hold nothing wanted.

    Raises ArchiveError if a time is wanted and neither a file nor its name has one.
    """
    splits: list[Split] = []
    for info in files:
        if wanted is not None and not info.may_hold(wanted):
            continue
        for start, end in _ranges(info, max(1, target_bytes)):
            splits.append(
                Split(
                    info.path,
                    info.format,
                    info.compression,
                    start,
                    end,
                    info.topic,
                    info.channel,
                    info.size_bytes,
                    len(splits),
                    info.is_live,
                    info.settled_bytes,
                )
            )
    return splits


def _ranges(info: FileInfo, target_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield equal parts, so that none is left over that is hardly worth a task."""
    size = info.size_bytes - info.start
    if size <= 0:
        return
    parts = max(1, round(size / target_bytes)) if info.can_be_split else 1
    bounds = [info.start + size * part // parts for part in range(parts + 1)]
    yield from zip(bounds, bounds[1:], strict=False)


def pack(splits: Sequence[Split], target_bytes: int = DEFAULT_SPLIT_BYTES) -> list[list[Split]]:
    """Return a group of splits for each task, of about `target_bytes` each, in the order of the plan."""
    groups: list[list[Split]] = []
    room = 0
    for split in splits:
        cost = split.size_bytes + OPEN_COST_BYTES
        if not groups or cost > room:
            groups.append([])
            room = max(target_bytes, OPEN_COST_BYTES)
        groups[-1].append(split)
        room -= cost
    return groups
