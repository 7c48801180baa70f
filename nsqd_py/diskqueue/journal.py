"""How a channel's position is kept on disk.

A journal is a row of entries, `[length u32][crc32c u32][payload]`, little-endian. The payload says what kind
of entry it is (u8: 1 snapshot, 2 change, 3 the channel is deleted), the floor (u64), and how many of each follow
(two u32): ranges of finished messages (low u64, high u64), and runs that wait (low u64, high u64, due ns i64,
attempts u16; due 0 is: queued). A snapshot says all; a change says what is new since the entry before. Reading
ends at the first entry that is cut off or does not match: what was finished since comes again, nothing is lost.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

from google_crc32c import extend

from nsqd_py.diskqueue.ranges import SeqRanges

JOURNAL_SUFFIX = ".cursor"
SNAPSHOT = 1
CHANGE = 2
DELETED = 3

Range = tuple[int, int]
Wait = tuple[int, int, int, int]  # low, high, due_ns, attempts

_FRAME = Struct("<II")
_HEAD = Struct("<BQII")
_RANGE = Struct("<QQ")
_WAIT = Struct("<QQqH")
_COMPACT_ABOVE = 64 * 1024
_GROWTH = 4


def journal_name(topic: str, channel: str = "") -> str:
    """`<topic>:<channel>.cursor`, or `<topic>.cursor` for what the topic itself writes down."""
    return f"{topic}:{channel}{JOURNAL_SUFFIX}" if channel else f"{topic}{JOURNAL_SUFFIX}"


@dataclass(slots=True)
class SavedPosition:
    """What a journal says: finished messages, and for those that wait how often they were tried and until when."""

    finished: SeqRanges = field(default_factory=SeqRanges)
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)  # sequence number: (due_ns, attempts)
    is_deleted: bool = False

    @property
    def end(self) -> int:
        """A number above all that this position speaks of."""
        return max(self.finished.islands_end, max(self.waiting, default=-1) + 1)

    def forget_finished(self) -> None:
        """What is finished waits no more."""
        covers = self.finished.covers
        self.waiting = {seq: state for seq, state in self.waiting.items() if not covers(seq, seq + 1)}


def encode_entry(kind: int, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> bytes:
    """One entry with its frame."""
    ranges = [_RANGE.pack(low, high) for low, high in finished]
    waits = [_WAIT.pack(low, high, due_ns, min(attempts, 0xFFFF)) for low, high, due_ns, attempts in waiting]
    payload = b"".join([_HEAD.pack(kind, floor, len(ranges), len(waits)), *ranges, *waits])
    return _FRAME.pack(len(payload), extend(0, payload)) + payload


def entry_bytes(data: bytes, position: int) -> int:
    """How long the entry at `position` is; 0 where there is no whole one."""
    if position + _FRAME.size + _HEAD.size > len(data):
        return 0
    length, checksum = _FRAME.unpack_from(data, position)
    end = position + _FRAME.size + length
    if length < _HEAD.size or end > len(data):
        return 0
    _, _, range_count, wait_count = _HEAD.unpack_from(data, position + _FRAME.size)
    if length != _HEAD.size + range_count * _RANGE.size + wait_count * _WAIT.size:
        return 0
    return end - position if extend(0, data[position + _FRAME.size : end]) == checksum else 0


def decode_journal(data: bytes) -> tuple[SavedPosition, int]:
    """The position that the entries add up to, and how many bytes of `data` were whole entries."""
    floor = kind = 0
    ranges: list[Range] = []
    waiting: dict[int, tuple[int, int]] = {}
    position = 0
    while size := entry_bytes(data, position):
        payload = data[position + _FRAME.size : position + size]
        kind, entry_floor, range_count, wait_count = _HEAD.unpack_from(payload)
        if kind == SNAPSHOT:
            ranges.clear()
            waiting.clear()
        floor = entry_floor
        ranges_end = _HEAD.size + range_count * _RANGE.size
        waits_end = ranges_end + wait_count * _WAIT.size
        ranges.extend(_RANGE.iter_unpack(payload[_HEAD.size : ranges_end]))
        for low, high, due_ns, attempts in _WAIT.iter_unpack(payload[ranges_end:waits_end]):
            waiting.update(dict.fromkeys(range(low, high), (due_ns, attempts)))
        position += size
    saved = _settle(floor, ranges, waiting)
    saved.is_deleted = kind == DELETED
    return saved, position


def _settle(floor: int, ranges: list[Range], waiting: dict[int, tuple[int, int]]) -> SavedPosition:
    """Merge the ranges once, and drop what waited and was finished later."""
    finished = SeqRanges(floor)
    top = floor
    for low, high in sorted(ranges):
        if high > top:
            finished.add(max(low, top), high)
            top = high
    saved = SavedPosition(finished, waiting)
    saved.forget_finished()
    return saved


class Journal:
    """A journal's file. Every method may raise OSError; then the journal is as it was."""

    __slots__ = ("_fd", "_size", "_snapshot_size", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._size = 0
        self._snapshot_size = 0

    def load(self) -> SavedPosition | None:
        """What the file says; None when there is none."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        saved, good = decode_journal(data)
        self._open()
        os.ftruncate(self._fd, good)
        self._size = good
        self._snapshot_size = 0
        return saved if good else None

    def change(self, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> None:
        """Append what is new."""
        self.append(encode_entry(CHANGE, floor, finished, waiting))

    def mark_deleted(self) -> None:
        """Say that the channel is gone, whatever other files say: the file itself goes later."""
        self.append(encode_entry(DELETED, 0, [], []))

    def append(self, entry: bytes) -> None:
        """Append an entry that is made already."""
        self._open()
        if os.pwrite(self._fd, entry, self._size) != len(entry):
            raise OSError(errno.ENOSPC, f"short write to {self.path.name}")
        self._size += len(entry)

    @property
    def wants_snapshot(self) -> bool:
        """The file grew to several times of what it has to say, or another program removed it."""
        return self._size > max(_COMPACT_ABOVE, _GROWTH * self._snapshot_size) or (
            self._fd >= 0 and not os.fstat(self._fd).st_nlink
        )

    def snapshot(self, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> None:
        """Replace the file by one that says all."""
        self.replace(encode_entry(SNAPSHOT, floor, finished, waiting))

    def replace(self, entry: bytes) -> None:
        """Likewise, by a snapshot that is made already."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            if os.write(fd, entry) != len(entry):
                raise OSError(errno.ENOSPC, f"short write to {temporary.name}")
            os.rename(temporary, self.path)
        except OSError:
            os.close(fd)
            raise
        self.close()
        self._fd = fd
        self._size = self._snapshot_size = len(entry)

    def fileno(self) -> int:
        """For a sync; -1 when nothing was written."""
        return self._fd

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Close and delete."""
        self.close()
        self.path.unlink(missing_ok=True)
