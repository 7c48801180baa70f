"""Deciding which files of a log are worth their space, from numbers only.

A file is kept whole while retention demands it, dropped when nobody needs it, and made sparse when less than half of
it is needed. So a log has at most twice the bytes of the live messages, plus the files at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from nsqd_py.diskqueue.file_index import Segment
from nsqd_py.diskqueue.ranges import Range
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES


class RetainedFile(Protocol):
    """The attributes of a file on which retention depends."""

    @property
    def first_seq(self) -> int: ...

    @property
    def end_seq(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def newest_ns(self) -> int: ...

    @property
    def is_whole(self) -> bool: ...


def retained_seq(files: Sequence[RetainedFile], retention_ns: int, retention_bytes: int, now_ns: int, next_seq: int) -> int:
    """Return the number from which on everything is kept.

    Kept are files younger than `retention_ns`, and the newest `retention_bytes`; 0 turns either rule off.
    """
    retained, newer_bytes = next_seq, 0
    for file in reversed(files):
        if not file.is_whole:
            break
        is_young = retention_ns > 0 and file.newest_ns + retention_ns > now_ns
        if file.end_seq > file.first_seq and not is_young and newer_bytes >= retention_bytes:
            break
        retained = file.first_seq
        newer_bytes += file.end_offset
    return retained


def holes(files: Iterable[RetainedFile], low: int, high: int) -> list[Range]:
    """Return the parts of low..high (not included) that no file covers."""
    found = []
    for file in files:
        if low >= high:
            break
        if file.end_seq > low:
            if file.first_seq > low:
                found.append((low, min(file.first_seq, high)))
            low = file.end_seq
    if low < high:
        found.append((low, high))
    return found


def alive_bytes(segments: Iterable[Segment], living: Sequence[Range]) -> int:
    """Estimate the bytes of the live messages, as if all messages of a part of a file had one size."""
    total = place = 0
    for segment in segments:
        while place < len(living) and living[place][1] <= segment.low:
            place += 1
        alive = 0
        while place < len(living) and living[place][0] < segment.high:
            low, high = living[place]
            alive += min(high, segment.high) - max(low, segment.low)
            if high > segment.high:
                break
            place += 1
        total += alive * segment.size_bytes // max(1, segment.message_count)
    return total


def moved_bytes(alive: int, living: Sequence[Range], *, is_sparse: bool) -> int:
    """Return the most bytes that the live messages take after a move: each run of them becomes one record."""
    return alive if is_sparse else alive + RECORD_HEADER_BYTES * len(living)


def is_worth_moving(size_bytes: int, alive: int, moved: int) -> bool:
    """True if less than half of a file is needed, and moving that frees at least a quarter of the file."""
    return 2 * alive < size_bytes and 4 * moved < 3 * size_bytes
