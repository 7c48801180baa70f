"""The journal of a channel: its position on disk.

A journal is a sequence of entries `[length u32][crc32c u32][payload]`, little-endian. The payload has the kind of the
entry (u8: 1 snapshot, 2 change, 3 the channel is deleted), the floor (u64), the numbers of the two lists that follow
(two u32), and the lists: ranges of finished messages (low u64, high u64), and waiting runs (low u64, high u64, due ns
i64, attempts u16). Due 0 means queued; a negative due time means queued behind all messages below the number -due - 1.
A snapshot has the whole position; a change has what is new since the entry before. An entry
that is cut off or whose checksum is wrong is skipped: messages that it finished are redelivered, and none is lost. An
entry of another kind is of a later version: this one cannot know what it changes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from google_crc32c import extend

from nsqd_py.diskqueue.files.log_file import replace_file, write_whole
from nsqd_py.diskqueue.files.open_files import OPEN_FILES
from nsqd_py.diskqueue.journals.ranges import Range, SeqRanges
from nsqd_py.diskqueue.journals.waits import WAIT_BYTES, PackedWaits, grouped, parts
from nsqd_py.diskqueue.records import NewerFormat
from nsqd_py.pqueues.deferred import Wait
from nsqd_py.runtime.private_files import open_file, opened, read_bytes

JOURNAL_SUFFIX = ".cursor"
_REPLACEMENT_SUFFIX = "~.cursor.tmp"  # `~` is in no name of a channel
SNAPSHOT = 1
CHANGE = 2
DELETED = 3
_KINDS = (SNAPSHOT, CHANGE, DELETED)

_FRAME = Struct("<II")
_HEAD = Struct("<BQII")
_RANGE = Struct("<QQ")
# In one entry: a waiting message takes 200 bytes of memory when each is a run.
MOST_WAITING = 1 << 26
_END_OF_NUMBERS = 1 << 62
_COMPACT_ABOVE = 64 * 1024
_GROWTH = 4


# The floor, finished ranges and waiting runs of a snapshot.
Snapshot = tuple[int, Iterable[Range], Iterable[Wait]]


def journal_name(topic: str, channel: str = "") -> str:
    """Return `<topic>:<channel>.cursor`, or `<topic>.cursor` for the position of the topic itself."""
    if channel:
        return f"{topic}:{channel}{JOURNAL_SUFFIX}"
    return f"{topic}{JOURNAL_SUFFIX}"


@dataclass(slots=True)
class SavedPosition:
    """The position in a journal: finished messages, and the attempts and due times of waiting ones."""

    finished: SeqRanges = field(default_factory=SeqRanges)
    waiting: PackedWaits = field(default_factory=PackedWaits)
    is_deleted: bool = False

    @property
    def end(self) -> int:
        """A number above all messages in this position."""
        return max(self.finished.islands_end, self.waiting.end)

    def forget_finished(self) -> None:
        """Remove finished messages from `waiting`, and states that a later one replaces."""
        self.waiting = PackedWaits(parts(self.waiting.latest(), self.finished.gaps))


# ---- entries


def encode_entry(kind: int, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> bytes:
    """Return an entry with its frame."""
    ranges = array("Q", chain.from_iterable(finished))  # 20 ns a range, packed one by one 250
    waits = PackedWaits(waiting)
    if sys.byteorder != "little":
        ranges.byteswap()
    payload = b"".join(
        [_HEAD.pack(kind, floor, len(ranges) // 2, len(waits)), ranges.tobytes(), bytes(waits)]
    )
    return _FRAME.pack(len(payload), extend(0, payload)) + payload


class _Entry(NamedTuple):
    size: int
    kind: int
    floor: int
    finished: list[Range]
    waiting: bytes  # packed


def _entry_at(data: bytes, position: int) -> _Entry | None:
    """Return the entry at `position`; None if there is no complete one that nsqd wrote. Raises NewerFormat."""
    start = position + _FRAME.size
    if start + _HEAD.size > len(data):
        return None
    length, checksum = _FRAME.unpack_from(data, position)
    kind, floor, range_count, wait_count = _HEAD.unpack_from(data, start)
    waits_at = start + _HEAD.size + range_count * _RANGE.size
    end = start + length
    if end > len(data) or end != waits_at + wait_count * WAIT_BYTES or extend(0, data[start:end]) != checksum:
        return None
    finished = list(_RANGE.iter_unpack(data[start + _HEAD.size : waits_at]))
    waiting = data[waits_at:end]
    # nsqd writes no numbers that a log cannot reach, and no more waiting messages than memory can hold.
    if max([floor, *(high for _, high in finished)]) >= _END_OF_NUMBERS:
        return None
    if waiting and not _can_wait(waiting):
        return None
    if kind not in _KINDS:
        raise NewerFormat(f"entries of kind {kind}; this version reads kinds {_KINDS[0]} to {_KINDS[-1]}")
    return _Entry(end - position, kind, floor, finished, waiting)


def _can_wait(packed: bytes) -> bool:
    """True if these messages can be in a log, and in memory."""
    waits = PackedWaits()
    waits.add_packed(packed)
    if waits.end >= _END_OF_NUMBERS:
        return False
    return sum(max(0, high - low) for low, high, _, _ in waits) <= MOST_WAITING


def _settle(floor: int, ranges: list[Range], waiting: PackedWaits) -> SavedPosition:
    """Merge the ranges once, and keep the last state of each waiting message that was not finished later."""
    finished = SeqRanges(floor)
    top = floor
    for low, high in sorted(ranges):
        if high > top:
            finished.add(max(low, top), high)
            top = high
    saved = SavedPosition(finished, waiting)
    if len(waiting):
        saved.forget_finished()
    return saved


class JournalContent(NamedTuple):
    """The content of a journal, also behind damage.

    saved    the position from all readable entries; later entries add to earlier ones, so a lost one in the middle only
             means that messages are redelivered
    damaged  damaged byte ranges that have entries behind them, or are the whole file
    end      the end of the last readable entry; behind it may be a torn one, as a power cut leaves it
    """

    saved: SavedPosition
    damaged: list[Range]
    end: int


def read_journal(data: bytes, *, with_waiting: bool = True) -> JournalContent:
    """Read every readable entry of a journal. Raises NewerFormat.

    `with_waiting` is False if only the finished messages are needed.
    """
    floor = 0
    kind = 0
    position = 0
    end = 0
    ranges: list[Range] = []
    waiting = PackedWaits()
    damaged = []
    while position < len(data):
        entry = _entry_at(data, position)
        if entry is None:
            position += 1
            continue
        if position > end:
            damaged.append((end, position))
        if entry.kind == SNAPSHOT:
            ranges.clear()
            waiting.clear()
        kind = entry.kind
        floor = entry.floor
        ranges.extend(entry.finished)
        if with_waiting:
            waiting.add_packed(entry.waiting)
        end = position + entry.size
        position = end
    if data and not end:
        damaged.append((0, len(data)))
    saved = _settle(floor, ranges, waiting)
    saved.is_deleted = kind == DELETED
    return JournalContent(saved, damaged, end)


def says_deleted(path: Path) -> bool:
    """True if a journal says that its topic or channel is deleted; the files may be there still. Raises OSError."""
    try:
        return read_journal(read_bytes(path), with_waiting=False).saved.is_deleted
    except NewerFormat:
        return False


def encode_position(saved: SavedPosition) -> bytes:
    """Return a snapshot of the position."""
    if saved.is_deleted:
        return encode_entry(DELETED, 0, [], [])
    waits = grouped(saved.waiting.rising())
    return encode_entry(SNAPSHOT, saved.finished.floor, saved.finished.islands(), waits)


# ---- the file


class LargeSnapshot:
    """A large snapshot that a thread makes and writes, while changes are still appended to the journal.

    `make` returns the arguments of `Journal.snapshot`; it runs in the thread.
    """

    def __init__(self, journal: Journal, make: Callable[[], Snapshot]) -> None:
        self.since: list[bytes] = []
        self.size = 0
        self.fd = -1
        self.path = journal.path.with_name(
            journal.path.name.removesuffix(JOURNAL_SUFFIX) + _REPLACEMENT_SUFFIX
        )
        self._journal = journal
        self._make = make

    def write(self) -> None:
        """Make and write the snapshot; runs in a thread. Raises OSError."""
        entry = encode_entry(SNAPSHOT, *self._make())
        self.fd = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.size = len(entry)
        write_whole(self.fd, entry, 0, self.path)

    def finish(self) -> None:
        """Make the written snapshot the journal, with the entries appended since, unless it was replaced. Raises OSError."""
        journal = self._journal
        try:
            if self is journal.large_snapshot:
                since = b"".join(self.since)
                write_whole(self.fd, since, self.size, self.path)
                os.rename(self.path, journal.path)
                journal.note_replaced(self.size + len(since))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Drop the snapshot, unless it is the journal already."""
        if self is self._journal.large_snapshot:
            self._journal.large_snapshot = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        with contextlib.suppress(OSError):  # the next start removes it
            self.path.unlink(missing_ok=True)


class Journal:
    """The file of a journal. Methods that write raise OSError; then the journal is unchanged.

    version      changes whenever the file is replaced by another one
    is_unsynced  True if it was written since the last sync
    size_bytes   the size of all complete entries
    needs_snapshot  True if the file may be another one than nsqd has written, so that nothing is appended to it
    large_snapshot  the one that is being written, or None

    The file is open only during writes, a few times a second, 5 us each: a process may have more channels than
    descriptors.
    """

    __slots__ = ("is_unsynced", "path", "large_snapshot", "needs_snapshot", "size_bytes", "version")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 0
        self.is_unsynced = False
        self.needs_snapshot = False
        self.size_bytes = 0
        self.large_snapshot: LargeSnapshot | None = None

    def load(self, on_damage: Callable[[str], None] = lambda text: None) -> SavedPosition | None:
        """Return the position in the file; None if there is no file.

        A torn end is cut off. A damaged file is copied to another name, which `on_damage` reports, and replaced.
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
        self.size_bytes = content.end
        if content.damaged:
            aside = self.path.with_name(f"{self.path.name}.damaged")
            if not aside.exists():
                replace_file(aside, data, is_synced=False)
            where = ", ".join(f"{start} to {end}" for start, end in content.damaged)
            on_damage(
                f"{self.path.name} is damaged at bytes {where}: it is kept as {aside.name}, and messages that only those bytes "
                "counted as finished are redelivered"
            )
            if content.end:
                self.replace(encode_position(content.saved))
        if content.end < len(data):
            with opened(self.path, os.O_RDWR) as fd:
                os.ftruncate(fd, content.end)
        return content.saved if content.end else None

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

    def replace_by_deleted(self) -> None:
        """Write that what it describes is deleted, and nothing else. Raises OSError."""
        self.replace(encode_entry(DELETED, 0, [], []))

    def append(self, entry: bytes) -> None:
        """Append an encoded entry."""
        # A removed file is not recreated here: it needs a snapshot first, see `wants_snapshot`.
        if self.size_bytes:
            flags = os.O_RDWR
        else:
            flags = os.O_RDWR | os.O_CREAT
        fd = OPEN_FILES.with_room(lambda: open_file(self.path, flags))
        try:
            write_whole(fd, entry, self.size_bytes, self.path)
        finally:
            os.close(fd)
        self.size_bytes += len(entry)
        self.is_unsynced = True
        if self.large_snapshot is not None:
            self.large_snapshot.since.append(entry)

    def wants_snapshot(self, ranges: int, runs: int) -> bool:
        """True if the file is much larger than a snapshot with this many ranges and waiting runs would be.

        True also if another program removed or cut the file.
        """
        if self.large_snapshot is not None:
            return False
        if self.needs_snapshot:
            return True
        needed = _RANGE.size * ranges + WAIT_BYTES * runs
        is_large = self.size_bytes > max(_COMPACT_ABOVE, _GROWTH * needed)
        if is_large or not self.size_bytes:
            return is_large
        try:
            return os.lstat(self.path).st_size < self.size_bytes
        except FileNotFoundError:
            return True

    def want_snapshot(self) -> None:
        """Have the next write replace the file: what it has may be another position, or nothing."""
        self.close()
        self.needs_snapshot = True

    def snapshot(self, floor: int, finished: Iterable[Range], waiting: Iterable[Wait]) -> None:
        """Replace the file by a snapshot."""
        self.replace(encode_entry(SNAPSHOT, floor, finished, waiting))

    def replace(self, entry: bytes) -> None:
        """Replace the file by an encoded entry."""
        OPEN_FILES.with_room(lambda: replace_file(self.path, entry, is_synced=False))
        self.note_replaced(len(entry))

    def note_replaced(self, size_bytes: int) -> None:
        """Note that the file was replaced by another one."""
        self.large_snapshot = None
        self.needs_snapshot = False
        self.version += 1
        self.size_bytes = size_bytes
        self.is_unsynced = True

    def begin_large_snapshot(self, make: Callable[[], Snapshot]) -> LargeSnapshot:
        """Return a snapshot of now, which `make` encodes; the caller has it written in a thread, and finishes it."""
        self.large_snapshot = LargeSnapshot(self, make)
        return self.large_snapshot

    def close(self) -> None:
        """Drop a snapshot that is being written."""
        self.large_snapshot = None

    def sync(self) -> None:
        """Sync the file. May run in a thread."""
        if not self.size_bytes:
            return
        self.is_unsynced = False
        with opened(self.path, os.O_RDWR) as fd:
            os.fsync(fd)

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)
        self.version += 1
        self.size_bytes = 0
