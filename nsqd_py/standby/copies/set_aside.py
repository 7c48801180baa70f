"""The directories for what leaves the data path of a standby in the name of its primary and was not finished.

    standby-alone-<UTC>    what this nsqd wrote as a primary, unless a later epoch of the new primary proves that it has
                           that too: log files and cursors. Only an operator removes it.
    standby-removed-<UTC>  log files that left although a channel had not finished them, and cursors; of an nsqd that
                           was a primary, also everything that it had not finished when it began to follow. They are
                           retained for a week.

Log files are hard links, which take no space while the data path has the same file.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from nsqd_py.diskqueue.files.log_file import is_log_name, sync_directory
from nsqd_py.runtime.private_files import make_directory, read_bytes, write_bytes

ALONE_PREFIX = "standby-alone-"
REMOVED_PREFIX = "standby-removed-"
_RETENTION_S = 7 * 24 * 3600
_DAY = "%Y%m%d"


class SetAside:
    """The files that were set aside; `since_utc` is the time at which this nsqd began to follow.

    alone    the directory for what only an operator removes
    removed  the directory for what an old primary had not finished when it began to follow
    """

    def __init__(self, directory: Path, since_utc: str) -> None:
        self._directory = directory
        self.alone = directory / f"{ALONE_PREFIX}{since_utc}"
        self.removed = directory / f"{REMOVED_PREFIX}{since_utc}"

    def has_alone(self, path: Path) -> bool:
        """True if `standby-alone-` has the file."""
        retained = self.alone / path.name
        return retained.exists() and retained.samefile(path)

    def keep_removed(self, path: Path, journals: Iterable[Path]) -> Path:
        """Keep a log file and its cursors for a week. Return the path of the retained file. Raises OSError."""
        day = f"{REMOVED_PREFIX}{time.strftime(_DAY, time.gmtime())}"
        retained = self._directory / day / path.name
        number = 0
        while retained.exists() and not retained.samefile(path):
            number += 1
            retained = self._directory / f"{day}.{number}" / path.name
        self.keep(retained.parent, [path, *journals])
        return retained

    def keep(self, target: Path, paths: Iterable[Path]) -> None:
        """Keep files in one of the directories. Raises OSError."""
        if not target.exists():
            self._forget_old()
        make_directory(target)
        for path in paths:
            retained = target / path.name
            with suppress(FileExistsError, FileNotFoundError):  # it was set aside before; it is gone
                if is_log_name(path.name):
                    os.link(path, retained)
                elif not retained.exists():
                    write_bytes(
                        retained, read_bytes(path)
                    )  # a journal goes on growing, so a link would grow too
        sync_directory(target)
        sync_directory(self._directory)

    def _forget_old(self) -> None:
        oldest_day = time.gmtime(time.time() - _RETENTION_S)
        oldest = REMOVED_PREFIX + time.strftime(_DAY, oldest_day)
        for path in self._directory.glob(f"{REMOVED_PREFIX}*"):
            if path.name < oldest:
                shutil.rmtree(path, ignore_errors=True)

    def drop(self, path: Path) -> None:
        """Remove a retained log file that is not needed, and the directory with its last one."""
        path.unlink(missing_ok=True)
        if not any(path.parent.glob("*.log")):
            shutil.rmtree(path.parent, ignore_errors=True)
