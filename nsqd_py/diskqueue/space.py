"""What of a topic's log is worth its space: decisions, on numbers only.

A file is kept whole while retention says so, dropped when nobody needs it, and made sparse when less than half of it
is needed: so a log has at most twice the bytes of what is alive, and the files at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from nsqd_py.diskqueue.file_index import Segment
from nsqd_py.diskqueue.ranges import Range
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES


class RetainedFile(Protocol):
    """What retention looks at."""

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


def retained_seq(
    files: Sequence[RetainedFile], retention_ns: int, retention_bytes: int, now_ns: int, next_seq: int
) -> int:
    """From which number on everything is kept: files that young, or among so many newest bytes; 0 is none of either."""
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
    """What of the numbers low..high (not included) lies between the files: they have no messages."""
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
    """About how many bytes the living messages take: the messages of a segment count as of one size."""
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
    """How much they take at most when they are moved: each row of messages gets a record of its own."""
    return alive if is_sparse else alive + RECORD_HEADER_BYTES * len(living)


def is_worth_moving(size_bytes: int, alive: int, moved: int) -> bool:
    """Less than half of a file is needed, and moving that gives back a quarter of it."""
    return 2 * alive < size_bytes and 4 * moved < 3 * size_bytes
