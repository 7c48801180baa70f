"""One open file: what is appended is in it whole or not at all, and counts once it is synced."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from google_crc32c import extend

from nsqd_py.diskqueue.files import sync_directory


class OutputFile:
    """A file that grows at its end. All methods may block, and raise OSError.

    A file of its own is locked until it is closed. A shared one, which may be there before and which other programs
    may append to, is locked while it is written to; a line that another program left unfinished is ended first.

    start_offset  where what is written here begins
    end           where the next bytes go
    synced_bytes  how much was written here and synced
    checksum      crc32c of that; None where others wrote in between
    """

    def __init__(self, path: Path, *, is_shared: bool = False) -> None:
        """Creates the file, or opens a shared one that is there. Raises FileExistsError otherwise."""
        self.path = path
        self.is_shared = is_shared
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | (0 if is_shared else os.O_EXCL), 0o666)
        self._written_bytes = self._written_checksum = 0
        self.synced_bytes = 0
        self.checksum: int | None = 0
        self._is_name_synced = False
        self._cut_due: int | None = None
        try:
            if not is_shared:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.end = self._kept_end = os.fstat(self._fd).st_size
            with self._locked():
                self._end_line()
        except OSError:
            os.close(self._fd)
            raise
        self.start_offset = self.end

    def append(self, data: bytes) -> None:
        """After an error the file is as it was."""
        with self._locked():
            self._go_behind_others()
            try:
                self._write(data)
            except OSError:
                self._cut(self.end)
                raise
        self.end += len(data)
        self._written_bytes += len(data)
        self._written_checksum = extend(self._written_checksum, data)

    def _write(self, data: bytes) -> None:
        if self._cut_due is not None:
            self._cut(self._cut_due)
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            view = view[written:]

    def _cut(self, end: int) -> None:
        """Where even this fails, nothing is written before it was done."""
        self._cut_due = end
        os.ftruncate(self._fd, end)
        self._cut_due = None

    def sync(self) -> None:
        """After an error, what was appended since the last sync may be lost, whatever a later sync says: `rewind`."""
        os.fdatasync(self._fd)
        if not self._is_name_synced:
            sync_directory(self.path.parent)
            self._is_name_synced = True
        self._kept_end = self.end
        self.synced_bytes = self._written_bytes
        if self.checksum is not None:
            self.checksum = self._written_checksum

    def rewind(self) -> None:
        """Cut off what is not synced, as it will be written again. It stays where others wrote behind it."""
        self._written_bytes = self.synced_bytes
        self._written_checksum = self.checksum or 0
        with self._locked():
            self._go_behind_others()
            self.end = self._kept_end
            self._cut(self.end)

    def discard(self) -> None:
        """Close the file, and remove its name while that still leads to this file. A shared one stays."""
        try:
            if not self.is_shared and os.path.samestat(os.fstat(self._fd), self.path.lstat()):
                self.path.unlink()
        finally:
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # --- files that others append to as well

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if not self.is_shared:
            yield
            return
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _go_behind_others(self) -> None:
        if not self.is_shared:
            return
        size = os.fstat(self._fd).st_size
        if size != self.end:
            self.checksum = None
            self.end = self._kept_end = size
            self._end_line()

    def _end_line(self) -> None:
        """A line without its end is what a kill left: nothing is cut, but the next line is one of its own."""
        if self.is_shared and self.end and os.pread(self._fd, 1, self.end - 1) != b"\n":
            self.end += os.write(self._fd, b"\n")
            self._kept_end = self.end
