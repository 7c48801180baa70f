"""An open file. Data is appended completely or not at all, and is safe after the next sync."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from google_crc32c import extend

from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.runtime.private_files import open_file

MODE = 0o666  # for other programs to read, unless the umask says otherwise


class OutputFile:
    """A file that is appended to. All methods may block, and raise OSError.

    A file that is not shared is locked until it is closed. A shared file may exist already, and other programs may
    append to it. It is locked during each write; an incomplete line of another program is ended first.

    start_offset  position of the first byte that this object wrote
    end           position of the next byte
    synced_bytes  number of bytes that this object wrote and synced
    checksum      crc32c of these bytes; None if other programs wrote between them
    """

    def __init__(self, path: Path, *, is_shared: bool = False) -> None:
        """Create the file, or open an existing shared one. Raises FileExistsError if an unshared file exists."""
        self.path = path
        self.is_shared = is_shared
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (0 if is_shared else os.O_EXCL)
        self._fd = open_file(path, flags, MODE)
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
        """Append the data. After an error the file is unchanged."""
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
        """Truncate the file. If this fails, the next write does it first."""
        self._cut_due = end
        os.ftruncate(self._fd, end)
        self._cut_due = None

    def sync(self) -> None:
        """Sync the file and, the first time, its directory.

        After an error, call `rewind`: the data since the last sync may be lost, even if a later sync succeeds.
        """
        os.fdatasync(self._fd)
        if not self._is_name_synced:
            sync_directory(self.path.parent)
            self._is_name_synced = True
        self._kept_end = self.end
        self.synced_bytes = self._written_bytes
        if self.checksum is not None:
            self.checksum = self._written_checksum

    def rewind(self) -> None:
        """Remove the data since the last sync, unless other programs wrote after it. The caller writes it again."""
        self._written_bytes = self.synced_bytes
        self._written_checksum = self.checksum or 0
        with self._locked():
            self._go_behind_others()
            self.end = self._kept_end
            self._cut(self.end)

    def discard(self) -> None:
        """Close the file, and delete it if its name still belongs to it. A shared file is not deleted."""
        try:
            if not self.is_shared and os.path.samestat(os.fstat(self._fd), self.path.lstat()):
                self.path.unlink()
        finally:
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # --- shared files

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
        """End a line that a killed process left incomplete, so that the next message begins on a new line."""
        if self.is_shared and self.end and os.pread(self._fd, 1, self.end - 1) != b"\n":
            self.end += os.write(self._fd, b"\n")
            self._kept_end = self.end
