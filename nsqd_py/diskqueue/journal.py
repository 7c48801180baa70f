"""How a channel's position is kept on disk.

A journal is a row of entries, `[length u32][crc32c u32][payload]`, little-endian. The payload says what kind
of entry it is (u8: 1 snapshot, 2 change, 3 the channel is deleted), the floor (u64), and how many of each follow
(two u32): ranges of finished messages (low u64, high u64), and runs that wait (low u64, high u64, due ns i64,
attempts u16). Due 0 means queued, a negative due time that the run is queued behind all messages below the number
-due - 1. A snapshot says all; a change says what is new since the entry before. Reading ends at the first entry that
is cut off or does not match: messages that were finished since are delivered again, and none is lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from struct import Struct

from google_crc32c import extend

from nsqd_py.diskqueue.damage import write_aside
from nsqd_py.diskqueue.open_files import OPEN_FILES
from nsqd_py.diskqueue.ranges import Range, SeqRanges

JOURNAL_SUFFIX = ".cursor"
_REPLACEMENT_SUFFIX = "~.cursor.tmp"  # `~` is in no name of a channel
SNAPSHOT = 1
CHANGE = 2
DELETED = 3

Wait = tuple[int, int, int, int]  # low, high, due_ns, attempts

_FRAME = Struct("<II")
_HEAD = Struct("<BQII")
_RANGE = Struct("<QQ")
_WAIT = Struct("<QQqH")
# Of one entry. A message that waits takes 100 bytes of memory.
MOST_WAITING = 1 << 26
_COMPACT_ABOVE = 64 * 1024
_GROWTH = 4


def journal_name(topic: str, channel: str = "") -> str:
    """`<topic>:<channel>.cursor`, or `<topic>.cursor` for what the topic itself writes down."""
    return f"{topic}:{channel}{JOURNAL_SUFFIX}" if channel else f"{topic}{JOURNAL_SUFFIX}"


@dataclass(slots=True)
class SavedPosition:
    """What a journal says: finished messages, and for those that wait how often they were tried and until when."""

    finished: SeqRanges = field(default_factory=SeqRanges)
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)  # sequence number: (due_ns, attempts), in order
    is_deleted: bool = False

    @property
    def end(self) -> int:
        """A number above all that this position speaks of."""
        return max(self.finished.islands_end, max(self.waiting, default=-1) + 1)

    def forget_finished(self) -> None:
        """What is finished waits no more."""
        covers = self.finished.covers
        self.waiting = {seq: state for seq, state in self.waiting.items() if not covers(seq, seq + 1)}


def queued_after(seq: int) -> int:
    """What an entry has for the due time of a message that is queued behind all messages below `seq`."""
    return -1 - seq


def encode_entry(kind: int, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> bytes:
    """One entry with its frame."""
    ranges = array("Q", chain.from_iterable(finished))  # 20 ns a range, packed one by one 250
    waits = [_WAIT.pack(low, high, due_ns, min(attempts, 0xFFFF)) for low, high, due_ns, attempts in waiting]
    if sys.byteorder != "little":
        ranges.byteswap()
    payload = b"".join([_HEAD.pack(kind, floor, len(ranges) // 2, len(waits)), ranges.tobytes(), *waits])
    return _FRAME.pack(len(payload), extend(0, payload)) + payload


def group_waiting(waiting: dict[int, tuple[int, int]], released: int) -> Iterator[Wait]:
    """Single waiting messages as runs of one state."""
    low = previous = -2
    state = (0, 0)
    for seq in sorted(waiting):
        if seq >= released:
            break
        if seq == previous + 1 and waiting[seq] == state:
            previous = seq
            continue
        if low >= 0:
            yield low, previous + 1, *state
        low = previous = seq
        state = waiting[seq]
    if low >= 0:
        yield low, previous + 1, *state


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


def next_entry(data: bytes, position: int) -> int:
    """Return where the next whole entry begins, from `position` on; the end of `data` where there is none."""
    while position < len(data) and not entry_bytes(data, position):
        position += 1
    return position


def decode_journal(data: bytes) -> tuple[SavedPosition, int]:
    """The position that the entries add up to, and how many bytes of `data` were whole entries."""
    floor = kind = 0
    ranges: list[Range] = []
    waiting: dict[int, tuple[int, int]] = {}
    position = 0
    while size := entry_bytes(data, position):
        payload = data[position + _FRAME.size : position + size]
        kind, entry_floor, range_count, _ = _HEAD.unpack_from(payload)
        waits_at = _HEAD.size + range_count * _RANGE.size
        if not _is_possible(payload, waits_at):
            break
        if kind == SNAPSHOT:
            ranges.clear()
            waiting.clear()
        floor = entry_floor
        ranges.extend(_RANGE.iter_unpack(payload[_HEAD.size : waits_at]))
        for low, high, due_ns, attempts in _WAIT.iter_unpack(payload[waits_at:]):
            for seq in range(low, high):
                waiting.pop(seq, None)  # the order is that in which they came back last
                waiting[seq] = due_ns, attempts
        position += size
    saved = _settle(floor, ranges, waiting)
    saved.is_deleted = kind == DELETED
    return saved, position


def _is_possible(payload: bytes, waits_at: int) -> bool:
    """False if an entry says that more messages wait than memory can hold: whoever wrote it meant harm."""
    waiting: int = sum(max(0, high - low) for low, high, _, _ in _WAIT.iter_unpack(payload[waits_at:]))
    return waiting <= MOST_WAITING


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


class Replacement:
    """A snapshot that takes its time: made and written in a thread, while changes go on being appended to the journal.

    `make` gives the entry; it runs in the thread.
    """

    def __init__(self, journal: Journal, make: Callable[[], bytes]) -> None:
        self.since: list[bytes] = []
        self.size = 0
        self.fd = -1
        self.path = journal.path.with_name(journal.path.name.removesuffix(JOURNAL_SUFFIX) + _REPLACEMENT_SUFFIX)
        self._journal = journal
        self._make = make

    def write(self) -> None:
        """Raises OSError."""
        entry = self._make()
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self.size = len(entry)
        _write_whole(self.fd, entry, 0, self.path)

    def finish(self) -> None:
        """It is written: it becomes the journal, with what was appended meanwhile. Raises OSError."""
        self._journal.take_over(self)

    def abandon(self) -> None:
        """The journal stays as it is."""
        self._journal.forget(self)
        self.close()
        with contextlib.suppress(OSError):  # the next start removes it
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close its file, which stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _write_whole(fd: int, data: bytes, offset: int, path: Path) -> None:
    if os.pwrite(fd, data, offset) != len(data):
        raise OSError(errno.ENOSPC, f"short write to {path.name}")


class Journal:
    """A journal's file. Every method may raise OSError; then the journal is as it was.

    It is open only while it is written to, a few times a second, 5 us each: there may be more channels than the process
    may have descriptors.
    """

    __slots__ = ("_replacement", "_size", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = 0
        self._replacement: Replacement | None = None

    def load(self, on_damage: Callable[[str], None] = lambda text: None) -> SavedPosition | None:
        """Return what the file says; None when there is none.

        A torn end is cut off. Entries behind a damaged one are kept in another file, which `on_damage` is told of.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        saved, good = decode_journal(data)
        if good != len(data):
            if next_entry(data, good) < len(data):
                on_damage(self._keep_aside(good, data[good:]))
            os.truncate(self.path, good)
        self._size = good
        return saved if good else None

    def _keep_aside(self, position: int, data: bytes) -> str:
        aside = self.path.with_name(f"{self.path.name}.{position}.damaged")
        if not aside.exists():
            write_aside(aside, data)
        return (
            f"{self.path.name} is damaged at {position}: {len(data)} bytes from there on are kept as {aside.name}, and "
            "messages that they counted as finished are delivered again"
        )

    def change(self, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> None:
        """Append what is new."""
        self.append(encode_entry(CHANGE, floor, finished, waiting))

    def mark_deleted(self) -> None:
        """Say that the channel is gone, whatever other files say: the file itself goes later."""
        entry = encode_entry(DELETED, 0, [], [])
        try:
            self.append(entry)
        except FileNotFoundError:  # another program has removed it
            self.replace(entry)

    def append(self, entry: bytes) -> None:
        """Append an entry that is made already."""
        # One that has been removed is not made here: it needs a snapshot first, see `wants_snapshot`.
        flags = os.O_RDWR | (0 if self._size else os.O_CREAT)
        fd = OPEN_FILES.with_room(lambda: os.open(self.path, flags, 0o600))
        try:
            _write_whole(fd, entry, self._size, self.path)
        finally:
            os.close(fd)
        self._size += len(entry)
        if self._replacement is not None:
            self._replacement.since.append(entry)

    def wants_snapshot(self, ranges: int, runs: int) -> bool:
        """True when the file is several times as large as a snapshot with about so many ranges and waiting runs.

        Also when another program removed the file.
        """
        if self._replacement is not None:
            return False
        needed = _RANGE.size * ranges + _WAIT.size * runs
        is_large = self._size > max(_COMPACT_ABOVE, _GROWTH * needed)
        return is_large or (self._size > 0 and not os.path.lexists(self.path))

    def snapshot(self, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> None:
        """Replace the file by one that says all."""
        self.replace(encode_entry(SNAPSHOT, floor, finished, waiting))

    def replace(self, entry: bytes) -> None:
        """Likewise, by a snapshot that is made already."""
        self._replacement = None
        temporary = self.path.with_name(self.path.name + ".tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        fd = OPEN_FILES.with_room(lambda: os.open(temporary, flags, 0o600))
        try:
            if os.write(fd, entry) != len(entry):
                raise OSError(errno.ENOSPC, f"short write to {temporary.name}")
            os.rename(temporary, self.path)
        finally:
            os.close(fd)
        self._size = len(entry)

    def begin_replacement(self, make: Callable[[], bytes]) -> Replacement:
        """A snapshot that `make` gives, which says all as of now; to be written in a thread, and finished."""
        self._replacement = Replacement(self, make)
        return self._replacement

    def take_over(self, replacement: Replacement) -> None:
        """Go on with what was written, unless the journal was replaced otherwise meanwhile. Raises OSError."""
        if replacement is not self._replacement:
            replacement.abandon()
            return
        since = b"".join(replacement.since)
        try:
            _write_whole(replacement.fd, since, replacement.size, replacement.path)
            os.rename(replacement.path, self.path)
        except OSError:
            replacement.abandon()
            raise
        self._replacement = None
        replacement.close()
        self._size = replacement.size + len(since)

    def forget(self, replacement: Replacement) -> None:
        """It will not be finished."""
        if replacement is self._replacement:
            self._replacement = None

    def close(self) -> None:
        """Let a snapshot that is on its way come to nothing."""
        self._replacement = None

    def sync(self) -> None:
        """Bring what was written to the disk. May run in a thread."""
        if not self._size:
            return
        fd = os.open(self.path, os.O_RDWR)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)
        self._size = 0
