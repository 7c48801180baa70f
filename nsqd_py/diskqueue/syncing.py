"""Bringing files of a log to the disk, and what is done when the disk says no.

After an fsync that failed the system takes the pages for clean, or may have dropped them: a second fsync that
succeeds says nothing of them. So what no sync has covered is written anew, from what can still be read of it or
from memory, and only then synced again.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.records import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    Damaged,
    Incomplete,
    decode,
    decode_header,
    encode_record,
)
from nsqd_py.diskqueue.recovery import find_record

_LATELY_S = 600.0


@dataclass(slots=True)
class Unsynced:
    """A file up to a place, which is held until it is synced, or the directory (no file), that waits for a sync.

    descriptor  what the thread that syncs it uses, or has opened: to open one may take long
    error       why the sync failed
    """

    file: LogFile | None
    end_offset: int = 0
    end_seq: int = 0
    directory: Path | None = None
    error: OSError | None = None
    descriptor: int = -1

    def open(self) -> bool:
        """Set the descriptor; True if it is to be closed. Raises OSError."""
        if self.directory is not None:
            self.descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            return True
        assert self.file is not None
        if self.file.is_open:
            self.descriptor = self.file.fileno()
            return False
        # Nothing was written to it since it was opened last: it is synced for what another process wrote.
        self.descriptor = os.open(self.file.path, os.O_RDWR)
        return True


def sync_and_close(taken: Iterable[Unsynced], in_memory: Mapping[int, Batch]) -> None:
    """Sync each and end its hold; `error` tells of each how it went. May run in a thread.

    What failed before is written again first, see `write_again`.
    """
    for unsynced in taken:
        is_own = False
        try:
            is_own = unsynced.open()
            if unsynced.file is not None and unsynced.file.sync_error is not None:
                write_again(unsynced, in_memory)
            os.fdatasync(unsynced.descriptor)
        except OSError as error:
            unsynced.error = error
        finally:
            with contextlib.suppress(OSError):
                if is_own:
                    os.close(unsynced.descriptor)
                if unsynced.file is not None:
                    unsynced.file.let_go()


def write_again(unsynced: Unsynced, in_memory: Mapping[int, Batch]) -> None:
    """Write anew what no sync has covered. May run in a thread.

    A record that cannot be read back is taken from `in_memory`, by its first number; one that is not there either
    is left, to be found damaged by whoever reads it. Raises OSError.
    """
    file, descriptor = unsynced.file, unsynced.descriptor
    assert file is not None
    if not file.synced_offset:
        _write(descriptor, file.header.encode(), 0)
    offset, seq = max(file.synced_offset, FILE_HEADER_BYTES), file.synced_seq
    while offset < unsynced.end_offset:
        record = _record_at(descriptor, offset, file.salt)
        batch = in_memory.get(seq)
        if record is None and batch is not None:
            record = encode_record(batch, file.salt)
        if record is None:
            offset = _next_record(descriptor, offset, unsynced.end_offset, file.salt)
            seq = -1
            continue
        _write(descriptor, record, offset)
        offset += len(record)
        seq = decode_header(record, 0).end_seq


def _record_at(descriptor: int, offset: int, salt: int) -> bytes | None:
    """The record there, its checksum verified; None when it cannot be read."""
    try:
        head = os.pread(descriptor, RECORD_HEADER_BYTES, offset)
        record = os.pread(descriptor, decode_header(head, 0).record_bytes, offset)
        decode(record, 0, salt)
    except (OSError, Damaged, Incomplete):
        return None
    return record


def _next_record(descriptor: int, offset: int, end_offset: int, salt: int) -> int:
    """Where the next good record begins behind one that is not."""
    found = find_record(os.pread(descriptor, end_offset - offset, offset), 1, salt)
    return end_offset if found is None else offset + found


def _write(descriptor: int, data: bytes, offset: int) -> None:
    if os.pwrite(descriptor, data, offset) != len(data):
        raise OSError(errno.ENOSPC, "what a failed sync left could be written again in part only")


def written_lately(files: list[LogFile]) -> list[LogFile]:
    """Those that were written to not long before the last one: of the others the system has taken care."""
    times = [file.modified_s for file in files]
    return [file for file, time in zip(files, times, strict=True) if time > times[-1] - _LATELY_S]
