"""Compacting a closed file, and the rules that say which files stay whole and which are worth it.

A compaction moves the live messages of a file to a sparse file; the rest is deleted. The sparse file is the file before,
to which they are appended, or a new one that takes the name of the old file. Until the old file is gone, it is complete
and valid: a start that finds both truncates the sparse one (`recovery`).

`step` runs in a thread, one piece at a time; everything else runs in the event loop.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from nsqd_py.diskqueue.checking import ReadAt, read_by
from nsqd_py.diskqueue.files.log_file import (
    COMPACT_SUFFIX,
    LogFile,
    Segment,
    new_salt,
    run_to_end,
    sync_directory,
    write_whole,
)
from nsqd_py.diskqueue.journals.ranges import Range, is_within
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.reading import ReadableFile, RecordWindow
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES, Damaged, Incomplete, decode_header, encode_record
from nsqd_py.protocol.batch import Batch

# One step writes this many bytes or records, about 10 ms, since the thread may keep the event loop from running.
_PIECE_BYTES = 256 * 1024
_PIECE_RECORDS = 100


# ---- a compaction


class Unmovable(Damaged):
    """A needed message cannot be read, so the file cannot be compacted."""


class Compaction:
    """The compaction of one file. Every method may raise OSError; then call `abandon`."""

    def __init__(
        self, log: TopicLog, file: LogFile, living: Sequence[Range], neighbour: LogFile | None
    ) -> None:
        self._log = log
        self._file = file
        self._living = living
        self._neighbour = neighbour
        self._source = -1
        self._target: LogFile | None = None
        self._living_batches: Iterator[Batch] = iter(())
        self.is_done = False
        self._files = {file, neighbour or file}
        self._pinned = list(self._files)
        for each in self._files:  # a thread uses their descriptors
            each.pin()
        log.busy_files |= self._files

    # ---- in a thread

    def step(self) -> None:
        """Copy a piece; `is_done` is set after the last one is synced. Raises OSError and Unmovable."""
        target = self._target or self._begin()
        records = []
        size = 0
        for batch in self._living_batches:
            records.append(encode_record(batch, target.salt))
            size += len(records[-1])
            if size >= _PIECE_BYTES or len(records) >= _PIECE_RECORDS:
                break
        else:
            self.is_done = True
        _write(target, records)
        if self.is_done:
            self._sync(target)

    def _begin(self) -> LogFile:
        file = self._file
        neighbour = self._neighbour
        self._source = file.duplicate()
        # If a power cut loses the copy, the original must be on the disk.
        os.fdatasync(self._source)
        self._living_batches = walk(read_by(self._source), file, self._living)
        if neighbour is None:
            path = file.path.with_name(file.name + COMPACT_SUFFIX)
            path.unlink(missing_ok=True)
            header = file.header._replace(salt=new_salt(), is_reused=False, is_sparse=True)
            self._target = run_to_end(LogFile.creating(path, header))
        else:
            self._target = neighbour.twin()
        return self._target

    def _sync(self, target: LogFile) -> None:
        os.fsync(target.fileno())
        # The neighbour may be new: its name must be on the disk before the old file is removed.
        sync_directory(self._log.directory)

    # ---- in the event loop

    def settle(self, living: Sequence[Range]) -> Callable[[], None] | None:
        """Put the sparse file into the log, and return the rest of the work, which a thread does.

        Return None, with nothing done, if more messages are live now than were copied, or if the file was dropped.
        Then, and after an OSError, the compaction must be abandoned.
        """
        log = self._log
        file = self._file
        target = self._target
        neighbour = self._neighbour
        assert target is not None
        target.mark_synced()
        if file not in log.files or not is_within(living, self._living):
            return None
        if neighbour is None:
            os.rename(target.path, file.path)
            target.path = file.path
            log.replace(file, target)
            finish = file.close  # in a thread, since it frees the whole file
        else:
            finish = log.drop_moved(file)
            log.replace(neighbour, target)
            neighbour.close()
        self._release()
        return finish

    def abandon(self) -> None:
        """Undo everything. Raises nothing."""
        self._release()
        target = self._target
        if target is not None:
            target.close()
            if self._neighbour is None:
                with contextlib.suppress(OSError):  # the next start removes it
                    target.path.unlink(missing_ok=True)
            elif self._neighbour in self._log.files:
                self._neighbour.cut()
        self._log.busy_files -= self._files

    def _release(self) -> None:
        while self._pinned:
            self._pinned.pop().unpin()
        if self._source >= 0:
            os.close(self._source)
            self._source = -1


def _write(target: LogFile, records: list[bytes]) -> None:
    offset = target.end_offset
    write_whole(target.fileno(), b"".join(records), offset, target.path)
    for record in records:
        target.go_on(decode_header(record, 0), offset)
        offset += len(record)


def walk(read: ReadAt, file: ReadableFile, living: Sequence[Range]) -> Iterator[Batch]:
    """Yield the live messages as batches, in order.

    Raises Unmovable if one is missing or damaged, and OSError.
    """
    window = RecordWindow(read, file.end_offset)
    needed = deque(living)
    offset = 0
    try:
        while needed:
            low = needed[0][0]
            offset = window.find(file, low)
            yield from _take_parts(window.batch(offset, file.salt), needed)
    except (Damaged, Incomplete) as error:
        raise Unmovable(f"{file.name}: {error} ({offset})") from error


def _take_parts(batch: Batch, needed: deque[Range]) -> list[Batch]:
    """Remove from `needed` what the batch holds, and return these parts. Raises Damaged if a message is missing."""
    parts = []
    first = batch.first_seq
    end = batch.end_seq
    while needed and needed[0][0] < end:
        low, high = needed.popleft()
        if low < first:
            raise Damaged(f"message {low} is missing")
        parts.append(batch.part(low - first, min(high, end) - first))
        if high > end:
            needed.appendleft((end, high))
            break
    return parts


# ---- the rules


def retained_seq(
    files: Sequence[LogFile], retention_ns: int, retention_bytes: int, now_ns: int, next_seq: int
) -> int:
    """Return the number from which on everything is retained.

    Retained are files younger than `retention_ns`, and the newest `retention_bytes`; 0 turns either rule off.
    """
    retained = next_seq
    newer_bytes = 0
    for file in reversed(files):
        if not file.is_whole:
            break
        is_young = retention_ns > 0 and file.newest_ns + retention_ns > now_ns
        if file.end_seq > file.first_seq and not is_young and newer_bytes >= retention_bytes:
            break
        retained = file.first_seq
        newer_bytes += file.end_offset
    return retained


def holes(files: Iterable[LogFile], low: int, high: int) -> list[Range]:
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
    total = 0
    index = 0
    for segment in segments:
        while index < len(living) and living[index][1] <= segment.low:
            index += 1
        alive = 0
        while index < len(living) and living[index][0] < segment.high:
            low, high = living[index]
            alive += min(high, segment.high) - max(low, segment.low)
            if high > segment.high:
                break
            index += 1
        total += alive * segment.size_bytes // max(1, segment.message_count)
    return total


def moved_bytes(alive: int, living: Sequence[Range], *, is_sparse: bool) -> int:
    """Return the most bytes that the live messages take after a move: each run of them becomes one record."""
    if is_sparse:
        return alive
    return alive + RECORD_HEADER_BYTES * len(living)


def is_worth_moving(size_bytes: int, alive: int, moved: int) -> bool:
    """True if less than half of a file is needed, and moving that frees at least a quarter of the file."""
    return 2 * alive < size_bytes and 4 * moved < 3 * size_bytes
