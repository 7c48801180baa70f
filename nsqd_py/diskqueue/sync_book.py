"""What of a log waits for a sync, and what a sync that failed has left."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path

from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.syncing import Unsynced


class SyncBook:
    """Of one log.

    unsynced           files with something that no sync has covered
    directory_changed  files have appeared in the directory
    directory_error    why their names may not be on the disk
    """

    __slots__ = ("_directory", "_failed", "directory_changed", "directory_error", "unsynced")

    def __init__(self, directory: Path) -> None:
        self.unsynced: set[LogFile] = set()
        self.directory_changed = False
        self.directory_error: OSError | None = None
        self._directory = directory
        self._failed: frozenset[LogFile] = frozenset()

    def take(self, *, with_failed: bool) -> list[Unsynced]:
        """All that no sync has covered, held until `sync_and_close`; the directory is the last of it.

        Files whose last sync failed may be left for later.
        """
        files = {file for file in self.unsynced if with_failed or file.sync_error is None}
        for file in files:
            file.hold()
        taken = [Unsynced(file, file.end_offset, file.end_seq) for file in files]
        if self.directory_changed:
            taken.append(Unsynced(None, directory=self._directory))
        self.unsynced -= files
        self.directory_changed = False
        return taken

    def note(self, taken: Iterable[Unsynced], kept: Container[LogFile]) -> OSError | None:
        """A sync of these is over; gives why the log is not all on the disk, be it by an earlier one that failed.

        What failed waits for the next sync, as far as its file is `kept`.
        """
        self.directory_error = None
        for unsynced in taken:
            file = unsynced.file
            if file is None:
                self.directory_error = unsynced.error
                self.directory_changed |= unsynced.error is not None
            elif unsynced.error is not None:
                file.sync_error = unsynced.error
                if file in kept:
                    self.unsynced.add(file)
                    self._failed |= {file}
            else:
                file.synced_offset, file.synced_seq, file.sync_error = unsynced.end_offset, unsynced.end_seq, None
                self._failed -= {file}
        return self.directory_error or next((file.sync_error for file in self._failed), None)

    def error_of(self, seq: int) -> OSError | None:
        """Why the message of this number may not be on the disk; None when it is, or no sync was tried."""
        of_its_file = (file.sync_error for file in self._failed if file.first_seq <= seq < file.end_seq)
        return self.directory_error or next(of_its_file, None)

    def forget(self, file: LogFile) -> None:
        """The file is gone."""
        self.unsynced.discard(file)
        self._failed -= {file}
