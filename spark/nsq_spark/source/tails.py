"""To where a file can be read that may still grow: up to its last whole message. What is behind it is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nsq_spark.archive.damage import Damage
from nsq_spark.archive.formats import Compression, Format
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import FileInfo, plan_splits
from nsq_spark.archive.storage import Storage
from nsq_spark.source.offsets import NOTHING, byte_mark, next_byte

_FIRST_LOOK_BYTES = 1024 * 1024
_STEP = 4


def can_grow(info: FileInfo) -> bool:
    """Other files are put into their place when they are complete."""
    return info.compression is Compression.NONE and info.format is not Format.PARQUET


def readable_until(info: FileInfo, after: int, storage: Storage) -> int | None:
    """The mark up to which it can be read now; None where that is not above `after`.

    A byte mark where it ends with a whole message, else that of its last whole one: a message that is being written
    is waited for. Raises ArchiveError.
    """
    begin = next_byte(after) if after != NOTHING else info.start
    if begin >= info.size_bytes and not info.is_live:
        return None
    last, is_torn = NOTHING, False
    for start in _starts(info, begin):
        last, is_torn = _last_from(info, start, storage)
        if last != NOTHING:
            break
    if info.format in (Format.LINES, Format.JSONL):
        is_torn = not _ends_with_newline(info, storage)  # else a last line that is no JSON would seem to be torn
    until = last if is_torn or info.is_live else byte_mark(info.size_bytes)
    return until if until > after else None


def _starts(info: FileInfo, begin: int) -> Iterator[int]:
    """From where to look for the last message: from near the end, if it is where the end of what is written is."""
    size = _FIRST_LOOK_BYTES
    while info.can_be_split and not info.is_live and info.size_bytes - size > begin:
        yield info.size_bytes - size
        size *= _STEP
    yield begin


def _last_from(info: FileInfo, start: int, storage: Storage) -> tuple[int, bool]:
    """The position of the last message from a byte on, and whether the file ends with something else."""
    damage = _Tail(info.size_bytes)
    last = NOTHING
    for split in plan_splits([_from(info, start)], info.size_bytes):
        for chunk in read(split, storage, damage=damage):
            last = int(chunk.positions[-1])
    return last, damage.reaches_end


def _from(info: FileInfo, start: int) -> FileInfo:
    return replace(info, start=start)


def _ends_with_newline(info: FileInfo, storage: Storage) -> bool:
    with storage.open(info.path) as file:
        return file.read_at(info.size_bytes - 1, 1) == b"\n"


class _Tail(Damage):
    def __init__(self, size_bytes: int) -> None:
        super().__init__("skip")
        self._size_bytes = size_bytes
        self.reaches_end = False

    def found(self, path: str, start: int, end: int, what: str) -> None:
        self.reaches_end = self.reaches_end or end >= self._size_bytes
