"""Log files that a primary builds from what its standbys have, under other names.

`RebuiltFile` is a file while it is built, `Returned` has those that are complete, and gives them their names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nsqd_py.broker.state_files import read_clean_stop, write_clean_stop
from nsqd_py.diskqueue.files.log_file import (
    BACK_SUFFIX,
    LogFile,
    log_file_name,
    parse_log_file_name,
    sync_directory,
    write_whole,
)
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from nsqd_py.diskqueue.recovery import LogEnd, RecoveredFile, recover_file
from nsqd_py.feed.pieces import CHECKED_BYTES
from nsqd_py.runtime.private_files import create, open_file

# ---- complete files


class ReturnedFile(NamedTuple):
    """A file that is complete under another name."""

    topic: str
    first_seq: int
    end_seq: int
    end_offset: int

    @property
    def name(self) -> str:
        return log_file_name(self.topic, self.first_seq)


@dataclass(slots=True)
class Returned:
    """Files that are complete under other names, and the number of messages that come back with them."""

    directory: Path
    files: list[ReturnedFile] = field(default_factory=list)
    count: int = 0

    def install(self) -> None:
        """Give the files their names. The broker must be closed. Raises OSError.

        The record of the clean stop then says that they are there: after a kill in between, the next start misses the
        others, and asks again.
        """
        stop = read_clean_stop(self.directory)
        for file in self.files:
            if file.topic in stop.ends:
                stop.ends[file.topic] = _with_file(stop.ends[file.topic], file)
        write_clean_stop(self.directory, stop)
        for file in self.files:
            os.rename(self.directory / f"{file.name}{BACK_SUFFIX}", self.directory / file.name)
        sync_directory(self.directory)


def _with_file(end: LogEnd, file: ReturnedFile) -> LogEnd:
    """Return the end of a log that has this file too."""
    file_seqs = sorted({*end.file_seqs, file.first_seq})
    is_last = file_seqs[-1] == file.first_seq
    end_offset = file.end_offset if is_last else end.end_offset
    return LogEnd(max(end.next_seq, file.end_seq), file_seqs, end_offset)


# ---- a file while it is built


def write_new(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a new file. Raises OSError, and what `pieces` raises."""
    with create(path) as file:
        for data in pieces:
            file.write(data)


def copy_file(path: Path, copy: Path) -> None:
    """Copy a file under a new name. Raises OSError."""
    with open(path, "rb", opener=open_file) as source, create(copy) as target:
        shutil.copyfileobj(source, target)


def numbers_in(name: str, directory: Path) -> list[Range]:
    """Return the messages of a file that was built. Raises OSError and Damaged."""
    with RebuiltFile(directory / f"{name}{BACK_SUFFIX}") as building:
        return building.readable


class RebuiltFile:
    """A log file that is being built. It is opened, and all its records are checked. Methods raise OSError and Damaged."""

    def __init__(self, path: Path) -> None:
        self._file = LogFile.open(path)
        self._recovered: RecoveredFile = recover_file(self._file, is_last=True)

    def __enter__(self) -> RebuiltFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def readable(self) -> list[Range]:
        """The messages in it that can be read."""
        return self._recovered.readable

    def damaged(self, end_offset: int) -> list[Range]:
        """Return the bytes that are damaged, and those from its end up to `end_offset`."""
        own_end = self._file.end_offset
        ranges = [(low, min(high, end_offset)) for low, high in self._recovered.damaged if low < own_end]
        if end_offset > own_end:
            ranges.append((own_end, end_offset))
        return ranges

    def shared(self, end_offset: int) -> Range:
        """Return the last bytes that another copy has too, which ends at `end_offset`."""
        end = min(self._file.end_offset, end_offset)
        return max(FILE_HEADER_BYTES, end - CHECKED_BYTES), end

    def is_same(self, start: int, theirs: bytes) -> bool:
        """True if the undamaged bytes from `start` on are these.

        A log that was written to after it had lost its end has other messages from there on.
        """
        mine = bytearray(os.pread(self._file.fileno(), len(theirs), start))
        other = bytearray(theirs)
        for low, high in self._recovered.damaged:
            blank = slice(max(low - start, 0), max(high - start, 0))
            mine[blank] = bytes(len(mine[blank]))
            other[blank] = bytes(len(other[blank]))
        return mine == other

    def write(self, offset: int, pieces: Iterable[bytes]) -> None:
        """Write bytes of another copy."""
        for data in pieces:
            write_whole(self._file.fileno(), data, offset, self._file.path)
            offset += len(data)

    def as_returned(self, name: str) -> ReturnedFile:
        """Return what a start must know of this file, which gets the name `name`."""
        topic, first_seq = parse_log_file_name(name) or ("", 0)
        return ReturnedFile(topic, first_seq, self._file.end_seq, self._file.end_offset)

    def blank_damage(self) -> None:
        """Write zeros over damaged records, so that a start finds them, which reads the headers of most records only."""
        for low, high in self._recovered.damaged:
            self.write(low, [bytes(min(high, self._file.end_offset) - low)])

    def finish(self) -> None:
        """Cut off what comes behind the last record, and sync the file."""
        os.ftruncate(self._file.fileno(), self._file.end_offset)
        os.fsync(self._file.fileno())
