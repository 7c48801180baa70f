"""Repairs log files with what another nsqd of the group has of them.

A file with one name and one salt has the same bytes in both, if both logs are in the same epoch. So damaged bytes are
fetched from the same offset, each record is checked, and only whole records are written over the damaged bytes. A crash in
the middle of that leaves bytes damaged that were damaged before: no valid record is written over.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nsqd_py.diskqueue.checking import next_valid, record_end, valid_end
from nsqd_py.diskqueue.files.log_file import LogFile, topic_of_log, write_whole
from nsqd_py.diskqueue.journals.epochs import Epochs
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader
from nsqd_py.errors import NsqdError
from nsqd_py.runtime.private_files import open_file
from nsqd_py.runtime.threads import in_thread
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby.repairs.fetch import FetchFailed, FetchLink, RemoteFile, is_same_history

_MOST_BYTES = 1024 * 1024


@dataclass(eq=False, repr=False)
class StandbyCopy:
    """The copy of a primary's standby, which can be asked at one of `addresses`: a `Copy` of `broker.mending`."""

    _options: NsqdOptions
    _threadpool: Any
    _addresses: list[str]
    name = "a standby"

    def fill(self, log: TopicLog, path: Path, file: LogFile, ranges: list[Range]) -> list[Range]:
        target = RepairedFile(self._threadpool, path, file.name, file.salt)
        *others, last = self._addresses
        for address in others:
            with suppress(OSError, NsqdError):
                return repair_ranges(self._options, address, log.epochs, target, ranges)
        return repair_ranges(self._options, last, log.epochs, target, ranges)


def repair_ranges(
    options: NsqdOptions, address: str, epochs: Epochs, target: RepairedFile, ranges: list[Range]
) -> list[Range]:
    """Repair these ranges of a file with what the nsqd at `address` has. Return those that it does not have either.

    epochs  of this nsqd's log

    Blocks this greenlet. Raises OSError and NsqdError if that nsqd cannot be asked, or if the file cannot be written.
    """
    topic = topic_of_log(target.name) or ""
    with FetchLink(options, address) as link:
        remote_log = link.list_log(topic)
        same = [each for each in remote_log.files if each.name == target.name and each.salt == target.salt]
        if not same or not is_same_history(epochs, remote_log.epochs):
            return ranges
        remote = _RemoteCopy(link, same[0])
        with target.opened() as write:
            try:
                return [left for start, end in ranges for left in repair_range(remote, start, end, write)]
            except FetchFailed:  # it was replaced or removed there in the meantime
                return ranges


Write = Callable[[int, bytes], None]


class OtherCopy(Protocol):
    """Another copy of one log file, whose methods block this greenlet; `salt` is that of its header."""

    salt: int

    def fetch_bytes(self, offset: int, size_bytes: int) -> bytes:
        """Return these bytes; fewer at the end of the file."""

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` up to `end`."""


class _RemoteCopy:
    """A log file that another nsqd of the group has."""

    def __init__(self, link: FetchLink, remote: RemoteFile) -> None:
        self.salt = remote.salt
        self._link = link
        self._remote = remote

    def fetch_bytes(self, offset: int, size_bytes: int) -> bytes:
        return self._link.fetch_bytes(self._remote, offset, size_bytes)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        return self._link.pieces(self._remote, start, end)


def repair_range(copy: OtherCopy, start: int, end: int, write: Write) -> Iterator[Range]:
    """Write the valid records of a range. Yield the parts that are damaged there too."""
    if start == 0:
        header = copy.fetch_bytes(0, FILE_HEADER_BYTES)
        if FileHeader.decode(header).salt == copy.salt:
            write(0, header)
        start = FILE_HEADER_BYTES
    while start < end:
        data = copy.fetch_bytes(start, min(end - start, _MOST_BYTES))
        good = valid_end(data, copy.salt)
        if not good:
            after = record_end(data, start, end)
            if after is not None and after > start + len(data):
                data = b"".join(copy.pieces(start, after))
                good = valid_end(data, copy.salt)
        if good:
            write(start, data[:good])
            start += good
            continue
        after = next_valid(copy.fetch_bytes, copy.salt, start + 1, end)
        yield start, after
        start = after


@dataclass(eq=False, repr=False)
class RepairedFile:
    """A log file that is repaired at the damaged offsets, in threads.

    name  of the log file; `path` may be that of an unfinished new version
    salt  in its header
    """

    _threadpool: Any
    _path: Path
    name: str
    salt: int
    may_lack_header: bool = False
    _descriptor: int = -1

    @contextmanager
    def opened(self) -> Iterator[Write]:
        """Open the file, and yield a function that writes; at the end, everything is synced. Raises OSError."""
        in_thread(self._threadpool, self._open)
        try:
            yield lambda offset, data: in_thread(self._threadpool, self._write, offset, data)
            in_thread(self._threadpool, os.fsync, self._descriptor)
        finally:
            os.close(self._descriptor)

    def _open(self) -> None:
        self._descriptor = open_file(self._path, os.O_RDWR)
        try:
            # A whole header is never written over: the file may have been replaced by another version.
            is_this = FileHeader.decode(os.pread(self._descriptor, FILE_HEADER_BYTES, 0)).salt == self.salt
        except Damaged:
            is_this = self.may_lack_header
        if not is_this:
            os.close(self._descriptor)
            raise OSError(errno.ESTALE, "the file was replaced by another one", str(self._path))

    def _write(self, offset: int, data: bytes) -> None:
        write_whole(self._descriptor, data, offset, self._path)
