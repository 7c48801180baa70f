"""The journal of a channel: its position on disk.

A journal is a sequence of entries `[length u32][crc32c u32][payload]`, little-endian. The payload has the kind of the
entry (u8: 1 snapshot, 2 change, 3 the channel is deleted), the floor (u64), the numbers of the two lists that follow
(two u32), and the lists: ranges of finished messages (low u64, high u64), and waiting runs (low u64, high u64, due ns
i64, attempts u16). Due 0 means queued; a negative due time means queued behind all messages below the number -due - 1.
A snapshot has the whole position; a change has what is new since the entry before. An entry
that is cut off or whose checksum is wrong is skipped: messages that it finished are delivered again, and none is lost. An
entry of another kind is of a later version: this one cannot know what it changes.
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
from typing import NamedTuple

from google_crc32c import extend

from nsqd_py.clock import Wait
from nsqd_py.diskqueue.open_files import OPEN_FILES
from nsqd_py.diskqueue.ranges import Range, SeqRanges
from nsqd_py.diskqueue.records import NewerFormat
from nsqd_py.diskqueue.recovery import write_aside
from nsqd_py.runtime.private_files import open_file, read_bytes

JOURNAL_SUFFIX = ".cursor"
_REPLACEMENT_SUFFIX = "~.cursor.tmp"  # `~` is in no name of a channel
SNAPSHOT = 1
CHANGE = 2
DELETED = 3
_KINDS = (SNAPSHOT, CHANGE, DELETED)

_FRAME = Struct("<II")
_HEAD = Struct("<BQII")
_RANGE = Struct("<QQ")
_WAIT = Struct("<QQqH")
# In one entry. A waiting message takes 100 bytes of memory.
MOST_WAITING = 1 << 26
_END_OF_NUMBERS = 1 << 62
_COMPACT_ABOVE = 64 * 1024
_GROWTH = 4


def journal_name(topic: str, channel: str = "") -> str:
    """Return `<topic>:<channel>.cursor`, or `<topic>.cursor` for the position of the topic itself."""
    return f"{topic}:{channel}{JOURNAL_SUFFIX}" if channel else f"{topic}{JOURNAL_SUFFIX}"


@dataclass(slots=True)
class SavedPosition:
    """The position in a journal: finished messages, and the attempts and due times of waiting ones."""

    finished: SeqRanges = field(default_factory=SeqRanges)
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)  # sequence number: (due_ns, attempts), in order
    is_deleted: bool = False

    @property
    def end(self) -> int:
        """A number above all messages in this position."""
        return max(self.finished.islands_end, max(self.waiting, default=-1) + 1)

    def forget_finished(self) -> None:
        """Remove finished messages from `waiting`."""
        covers = self.finished.covers
        self.waiting = {seq: state for seq, state in self.waiting.items() if not covers(seq, seq + 1)}


def encode_entry(kind: int, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> bytes:
    """Return an entry with its frame."""
    ranges = array("Q", chain.from_iterable(finished))  # 20 ns a range, packed one by one 250
    waits = [_WAIT.pack(low, high, due_ns, min(attempts, 0xFFFF)) for low, high, due_ns, attempts in waiting]
    if sys.byteorder != "little":
        ranges.byteswap()
    payload = b"".join([_HEAD.pack(kind, floor, len(ranges) // 2, len(waits)), ranges.tobytes(), *waits])
    return _FRAME.pack(len(payload), extend(0, payload)) + payload


def group_waiting(waiting: dict[int, tuple[int, int]], released: int) -> Iterator[Wait]:
    """Yield waiting messages below `released` as runs with one state."""
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
    """Return the length of the entry at `position`; 0 if there is no complete one."""
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
    """Return the position of the next complete entry, from `position` on; the end of `data` if there is none."""
    while position < len(data) and not entry_bytes(data, position):
        position += 1
    return position


def decode_journal(data: bytes, *, with_waiting: bool = True) -> tuple[SavedPosition, int]:
    """Return the position that the entries add up to, and the number of bytes in complete entries.

    `with_waiting` is False if only the finished messages are needed. Raises NewerFormat.
    """
    floor = kind = 0
    ranges: list[Range] = []
    waiting: dict[int, tuple[int, int]] = {}
    position = 0
    while size := entry_bytes(data, position):
        payload = data[position + _FRAME.size : position + size]
        kind, entry_floor, range_count, _ = _HEAD.unpack_from(payload)
        waits_at = _HEAD.size + range_count * _RANGE.size
        finished = list(_RANGE.iter_unpack(payload[_HEAD.size : waits_at]))
        waits = list(_WAIT.iter_unpack(payload[waits_at:]))
        if not _is_possible(entry_floor, finished, waits):
            break
        if kind not in _KINDS:
            raise NewerFormat(f"entries of kind {kind}; this version reads kinds {_KINDS[0]} to {_KINDS[-1]}")
        if kind == SNAPSHOT:
            ranges.clear()
            waiting.clear()
        floor = entry_floor
        ranges.extend(finished)
        for low, high, due_ns, attempts in waits if with_waiting else ():
            for seq in range(low, high):
                waiting.pop(seq, None)  # keeps the order in which they were requeued
                waiting[seq] = due_ns, attempts
        position += size
    saved = _settle(floor, ranges, waiting)
    saved.is_deleted = kind == DELETED
    return saved, position


def _is_possible(floor: int, finished: list[Range], waits: list[Wait]) -> bool:
    """False if an entry has more waiting messages than memory can hold, or higher numbers than a log can reach.

    nsqd did not write it.
    """
    highest = max([floor, *(high for _, high in finished), *(high for _, high, _, _ in waits)])
    return highest < _END_OF_NUMBERS and sum(max(0, high - low) for low, high, _, _ in waits) <= MOST_WAITING


def _settle(floor: int, ranges: list[Range], waiting: dict[int, tuple[int, int]]) -> SavedPosition:
    """Merge the ranges once, and drop waiting messages that were finished later."""
    finished = SeqRanges(floor)
    top = floor
    for low, high in sorted(ranges):
        if high > top:
            finished.add(max(low, top), high)
            top = high
    saved = SavedPosition(finished, waiting)
    saved.forget_finished()
    return saved


class JournalContent(NamedTuple):
    """The content of a journal, also behind damage.

    saved    the position from all readable entries; later entries add to earlier ones, so a lost one in the middle only
             means that messages are delivered again
    damaged  damaged byte ranges that have entries behind them, or are the whole file
    end      the end of the last readable entry; behind it may be a torn one, as a power cut leaves it
    """

    saved: SavedPosition
    damaged: list[Range]
    end: int


def read_journal(data: bytes) -> JournalContent:
    """Read every readable entry of a journal. Raises NewerFormat."""
    good: list[bytes] = []
    damaged: list[Range] = []
    position = end = 0
    while position < len(data):
        start = next_entry(data, position)
        if start > position and (start < len(data) or not good):
            damaged.append((position, start))
        position = start + entry_bytes(data, start)
        if position > start:
            good.append(data[start:position])
            end = position
    saved, good_bytes = decode_journal(b"".join(good))
    if good_bytes < sum(map(len, good)):  # an entry that nsqd did not write, with a right checksum
        damaged.append((good_bytes, end))
    return JournalContent(saved, damaged, end)


def encode_position(saved: SavedPosition) -> bytes:
    """Return a snapshot of the position."""
    if saved.is_deleted:
        return encode_entry(DELETED, 0, [], [])
    waits = group_waiting(saved.waiting, _END_OF_NUMBERS)
    return encode_entry(SNAPSHOT, saved.finished.floor, saved.finished.islands(), waits)


class Replacement:
    """A large snapshot that a thread makes and writes, while changes are still appended to the journal.

    `make` returns the entry; it runs in the thread.
    """

    def __init__(self, journal: Journal, make: Callable[[], bytes]) -> None:
        self.since: list[bytes] = []
        self.size = 0
        self.fd = -1
        self.path = journal.path.with_name(journal.path.name.removesuffix(JOURNAL_SUFFIX) + _REPLACEMENT_SUFFIX)
        self._journal = journal
        self._make = make

    def write(self) -> None:
        """Make and write the snapshot; runs in a thread. Raises OSError."""
        entry = self._make()
        self.fd = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.size = len(entry)
        _write_whole(self.fd, entry, 0, self.path)

    def finish(self) -> None:
        """Make the written snapshot the journal, with the entries appended since it was begun. Raises OSError."""
        self._journal.take_over(self)

    def abandon(self) -> None:
        """Drop the snapshot; the journal stays as it is."""
        self._journal.forget(self)
        self.close()
        with contextlib.suppress(OSError):  # the next start removes it
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file without removing it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _write_whole(fd: int, data: bytes, offset: int, path: Path) -> None:
    if os.pwrite(fd, data, offset) != len(data):
        raise OSError(errno.ENOSPC, f"short write to {path.name}")


class Journal:
    """The file of a journal. Every method may raise OSError; then the journal is unchanged.

    version      changes whenever the file is replaced by another one
    is_unsynced  True if it was written since the last sync

    The file is open only during writes, a few times a second, 5 us each: a process may have more channels than
    descriptors.
    """

    __slots__ = ("_replacement", "_size", "is_unsynced", "path", "version")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        self.is_unsynced = False
        self._size = 0
        self._replacement: Replacement | None = None

    @property
    def size_bytes(self) -> int:
        """The size of all complete entries."""
        return self._size

    def load(self, on_damage: Callable[[str], None] = lambda text: None) -> SavedPosition | None:
        """Return the position in the file; None if there is no file.

        A torn end is cut off. A damaged file is kept under another name, which `on_damage` reports, and replaced.
        Raises StartError if a later version wrote it.
        """
        try:
            data = read_bytes(self.path)
        except FileNotFoundError:
            return None
        try:
            content = read_journal(data)
        except NewerFormat as error:
            raise error.refusal(str(self.path)) from error
        self._size = content.end
        if content.damaged:
            aside = self.path.with_name(f"{self.path.name}.damaged")
            if not aside.exists():
                write_aside(aside, data)
            places = ", ".join(f"{start} to {end}" for start, end in content.damaged)
            on_damage(
                f"{self.path.name} is damaged at bytes {places}: it is kept as {aside.name}, and messages that only those bytes "
                "counted as finished are delivered again"
            )
            if content.end:
                self.replace(encode_position(content.saved))
        if content.end < len(data):
            self._cut(self._size)
        return content.saved if content.end else None

    def _cut(self, end: int) -> None:
        fd = open_file(self.path, os.O_RDWR)
        try:
            os.ftruncate(fd, end)
        finally:
            os.close(fd)

    def change(self, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> None:
        """Append a change."""
        self.append(encode_entry(CHANGE, floor, finished, waiting))

    def mark_deleted(self) -> None:
        """Append that the channel is deleted, whatever other files say; the file itself is removed later."""
        entry = encode_entry(DELETED, 0, [], [])
        try:
            self.append(entry)
        except FileNotFoundError:  # another program has removed it
            self.replace(entry)

    def append(self, entry: bytes) -> None:
        """Append an encoded entry."""
        # A removed file is not created again here: it needs a snapshot first, see `wants_snapshot`.
        flags = os.O_RDWR | (0 if self._size else os.O_CREAT)
        fd = OPEN_FILES.with_room(lambda: open_file(self.path, flags))
        try:
            _write_whole(fd, entry, self._size, self.path)
        finally:
            os.close(fd)
        self._size += len(entry)
        self.is_unsynced = True
        if self._replacement is not None:
            self._replacement.since.append(entry)

    def wants_snapshot(self, ranges: int, runs: int) -> bool:
        """True if the file is much larger than a snapshot with this many ranges and waiting runs would be.

        True also if another program removed or cut the file.
        """
        if self._replacement is not None:
            return False
        needed = _RANGE.size * ranges + _WAIT.size * runs
        is_large = self._size > max(_COMPACT_ABOVE, _GROWTH * needed)
        return is_large or (self._size > 0 and not self._is_there())

    def _is_there(self) -> bool:
        try:
            return os.lstat(self.path).st_size >= self._size
        except FileNotFoundError:
            return False

    @staticmethod
    def snapshot_entry(floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> bytes:
        """Return the entry of a snapshot."""
        return encode_entry(SNAPSHOT, floor, finished, waiting)

    def snapshot(self, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> None:
        """Replace the file by a snapshot."""
        self.replace(encode_entry(SNAPSHOT, floor, finished, waiting))

    def replace(self, entry: bytes) -> None:
        """Replace the file by an encoded entry."""
        self._replacement = None
        temporary = self.path.with_name(self.path.name + ".tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        fd = OPEN_FILES.with_room(lambda: open_file(temporary, flags))
        try:
            if os.write(fd, entry) != len(entry):
                raise OSError(errno.ENOSPC, f"short write to {temporary.name}")
            os.rename(temporary, self.path)
        finally:
            os.close(fd)
        self.version += 1
        self._size = len(entry)
        self.is_unsynced = True

    def begin_replacement(self, make: Callable[[], bytes]) -> Replacement:
        """Return a snapshot of now, which `make` encodes; the caller has it written in a thread, and finishes it."""
        self._replacement = Replacement(self, make)
        return self._replacement

    def take_over(self, replacement: Replacement) -> None:
        """Use the written snapshot as the journal, unless the journal was replaced since. Raises OSError."""
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
        self.version += 1
        self._size = replacement.size + len(since)
        self.is_unsynced = True

    def forget(self, replacement: Replacement) -> None:
        """Forget a snapshot that will not be finished."""
        if replacement is self._replacement:
            self._replacement = None

    def close(self) -> None:
        """Drop a snapshot that is being written."""
        self._replacement = None

    def sync(self) -> None:
        """Sync the file. May run in a thread."""
        if not self._size:
            return
        self.is_unsynced = False
        fd = open_file(self.path, os.O_RDWR)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)
        self.version += 1
        self._size = 0
