"""Sets aside what leaves the data path of a standby in the name of its primary.

    standby-alone-<UTC>    what this nsqd wrote as a primary, unless a later epoch of the new primary proves that it has
                           that too: log files and cursors. Only an operator removes it.
    standby-removed-<UTC>  log files that left although a channel had not finished them, and cursors; of an nsqd that
                           was a primary, also everything that it had not finished when it began to follow. They are
                           kept for a week.

Log files are hard links, which take no space while the data path has the same file.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path

from nsqd_py.diskqueue.files import parse_log_file_name, sync_directory
from nsqd_py.diskqueue.ranges import Range
from nsqd_py.runtime.private_files import DIRECTORY_MODE, read_bytes, write_bytes
from nsqd_py.standby.unfinished import Leaving

ALONE_PREFIX = "standby-alone-"
REMOVED_PREFIX = "standby-removed-"
_KEPT_S = 7 * 24 * 3600
_DAY = "%Y%m%d"


class Aside:
    """The directories for what is set aside; `name` is the UTC time at which this nsqd began to follow.

    leaving  since the last complete round
    unsure   earlier ones that were not finished by then, with the time of that round
    counted  the messages in kept files that were counted
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._alone = directory / f"{ALONE_PREFIX}{name}"
        self._name = name
        self.leaving: list[Leaving] = []
        self.unsure: deque[tuple[float, Leaving]] = deque()
        self.counted: dict[Path, list[Range]] = {}

    def has_alone(self, path: Path) -> bool:
        """True if the file is kept in `standby-alone-`."""
        kept = self._alone / path.name
        return kept.exists() and kept.samefile(path)

    def keep_alone(self, path: Path) -> None:
        """Keep a log file for good. Raises OSError."""
        self._keep(self._alone, [path])

    def keep_cursors_alone(self, paths: Iterable[Path]) -> None:
        """Keep the files that describe the log files in `standby-alone-`, if there are any. Raises OSError."""
        if self._alone.exists():
            self._keep(self._alone, paths)

    def keep_all(self, paths: list[Path]) -> Path:
        """Keep files for a week, and return the directory. Raises OSError."""
        target = self._directory / f"{REMOVED_PREFIX}{self._name}"
        self._keep(target, paths)
        return target

    def keep_removed(self, paths: list[Path], leaving: Iterable[tuple[str, str, list[Range]]]) -> None:
        """Keep a log file and its cursors for a week; `leaving` has the rest of its `Leaving`s. Raises OSError."""
        path, day = paths[0], time.strftime(_DAY, time.gmtime())
        for number in count():
            kept = self._directory / (f"{REMOVED_PREFIX}{day}" + f".{number}" * bool(number)) / path.name
            if not kept.exists() or kept.samefile(path):
                break
        self._keep(kept.parent, paths)
        self.leaving += [Leaving(kept, *fields) for fields in leaving]

    def _keep(self, target: Path, paths: Iterable[Path]) -> None:
        if not target.exists():
            self._forget_old()
            target.mkdir(DIRECTORY_MODE)
        for path in paths:
            kept = target / path.name
            with suppress(FileExistsError, FileNotFoundError):  # it was kept before; it is gone
                if parse_log_file_name(path.name) is not None:
                    os.link(path, kept)
                elif not kept.exists():
                    write_bytes(kept, read_bytes(path))  # a journal is appended to in its place
        sync_directory(target)
        sync_directory(self._directory)

    def _forget_old(self) -> None:
        oldest = REMOVED_PREFIX + time.strftime(_DAY, time.gmtime(time.time() - _KEPT_S))
        for path in self._directory.glob(f"{REMOVED_PREFIX}*"):
            if path.name < oldest:
                shutil.rmtree(path, ignore_errors=True)

    def drop(self, path: Path) -> None:
        """Forget a kept log file that is not needed, and the directory with its last one."""
        path.unlink(missing_ok=True)
        if not any(path.parent.glob("*.log")):
            shutil.rmtree(path.parent, ignore_errors=True)
