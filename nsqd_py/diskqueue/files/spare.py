"""A used segment whose space the next one of the same log takes: to write over it is quicker than to allocate."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from nsqd_py.diskqueue.files.log_file import GONE_SUFFIX, SPARE_SUFFIX, LogFile


class SpareFile:
    """The used file that waits for the next one of a log, if any."""

    __slots__ = ("_least_bytes", "_name", "_path")

    def __init__(self, directory: Path, topic: str, max_file_bytes: int) -> None:
        """A file that is smaller than half of `max_file_bytes` is not kept."""
        self._name = directory / f"{topic}{SPARE_SUFFIX}"
        self._least_bytes = max_file_bytes // 2
        self._path: Path | None = None  # None while no file waits

    def wants(self, file: LogFile) -> bool:
        """True if none waits, and the space of this file is worth it."""
        return self._path is None and file.end_offset >= self._least_bytes and file.has_one_name

    def keep(self, file: LogFile) -> None:
        """Close a file that was dropped, and keep its space. Raises OSError; then the file is unchanged."""
        file.retire(self._name)
        self._path = self._name

    def take(self) -> Path | None:
        """Hand the waiting file over to the caller, who makes the next segment of it; None if there is none."""
        path = self._path
        self._path = None
        return path

    def rename(self) -> Path | None:
        """Return the new path of the waiting file, under which a thread may remove it; None if there is none."""
        path = self.take()
        if path is None:
            return None
        gone = path.with_name(path.name + GONE_SUFFIX)
        with suppress(OSError):  # else the next spare file replaces it, or the next start removes it
            os.rename(path, gone)  # a thread that is late must not remove the next spare file
        return gone

    def remove(self) -> None:
        """Remove the waiting file. Raises OSError; then it still waits."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None
