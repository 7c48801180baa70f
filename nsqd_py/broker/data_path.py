"""The directory that nsqd has locked and loaded, and whether the data path still leads there.

Somebody may move it, put another directory in its place, or mount a file system over it. Then nothing is written, since the
next start would not find it, or would find it without the rest: publishes are refused until the directory is back, or nsqd
restarts. One that was removed cannot come back. A directory that takes its place gets all files of nsqd.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from nsqd_py.queue.storage import WriteRefused
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.private_files import lock_directory

# A check costs 3 us or more, and one before each write takes 3 to 9 % of a PUB.
_CHECK_EVERY_NS = 10_000_000

# Device and inode of a directory.
_Identity = tuple[int, int]


class DataPath:
    """The data path of one nsqd. Without a lock, as in tests of a part of nsqd, it is always the right directory.

    problem       why nothing is written to it, or ""
    on_change     called when `problem` begins or ends
    on_emptied    called when a directory has replaced one that has no files any more
    check_due_ns  when the event loop must call `check_again` before it writes
    """

    def __init__(self, path: Path, log: Log) -> None:
        self.problem = ""
        self.on_change: Callable[[], None] = _nothing
        self.on_emptied: Callable[[], None] = _nothing
        self.check_due_ns = 0
        self._path = path
        self._log = log
        self._lock = -1
        self._loaded: _Identity | None = None
        self._other_lock = -1
        self._other: _Identity | None = None

    def lock(self) -> None:
        """Lock the directory. Raises BlockingIOError if another nsqd works there, and OSError."""
        self._take(lock_directory(self._path))

    def _take(self, lock: int) -> None:
        """Take a locked directory as the one that is loaded."""
        self._lock = lock
        self._loaded = _identity(os.fstat(lock))

    @property
    def is_locked(self) -> bool:
        return self._lock >= 0

    def close(self) -> None:
        """Release the locks."""
        self._loaded = None
        self._unlock_other()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _unlock_other(self) -> None:
        if self._other_lock >= 0:
            os.close(self._other_lock)
        self._other_lock = -1
        self._other = None

    # ---- where the path leads

    def is_here(self) -> bool:
        """True if the path leads to the loaded directory at this moment. May run in a thread."""
        loaded = self._loaded
        if loaded is None:
            return True
        try:
            return _identity(os.stat(self._path)) == loaded
        except OSError:
            return False

    def check(self) -> None:
        """Raise WriteRefused if the path leads to another directory, or did so at the last look."""
        if self.problem or not self.is_here():
            raise self.refusal()

    def check_again(self, now_ns: int) -> None:
        """Raise WriteRefused if the path leads to another directory; `problem` says so then.

        Not for a directory that was removed: what is still open in it is written again to the one that takes its place.
        """
        if self.is_here():
            self.check_due_ns = now_ns + _CHECK_EVERY_NS
        elif os.fstat(self._lock).st_nlink:
            self._set_problem(self._reason())
            raise self.refusal()

    def refusal(self) -> WriteRefused:
        """Return the error of what is not written now."""
        return WriteRefused(errno.ESTALE, self.problem or self._reason())

    def _reason(self) -> str:
        path = self._path.absolute()
        return f"{path} is not the directory that this nsqd has loaded; bring that one back, or restart nsqd"

    def look(self) -> None:
        """Look where the path leads. Raises BlockingIOError if another nsqd works there, and OSError."""
        status: os.stat_result | None = None
        if self.is_locked:
            with suppress(FileNotFoundError, NotADirectoryError):
                status = os.stat(self._path)
            self.find(status)

    def find(self, status: os.stat_result | None) -> None:
        """Handle the status of what the path leads to; None if it leads nowhere.

        Raises BlockingIOError if another nsqd works there, and OSError.
        """
        found = _identity(status) if status is not None else None
        if found == self._loaded:
            self._unlock_other()
            self._set_problem("")
        elif status is None or found is None:
            self._set_problem(self._reason())
        elif found != self._other:
            self._replaced(status, found)

    def _replaced(self, status: os.stat_result, found: _Identity) -> None:
        """Lock the directory that has replaced the loaded one. Raises BlockingIOError and OSError."""
        self._unlock_other()
        lock = lock_directory(self._path)
        if not os.listdir(self._lock):
            self._log.error(
                "NSQ: %s was replaced by another directory, which is locked again, and gets all files: the one before has none",
                self._path,
            )
            os.close(self._lock)
            self._take(lock)
            self._set_problem("")
            self.on_emptied()
            return
        self._other = found
        if status.st_dev == os.fstat(self._lock).st_dev:
            self._other_lock = lock
            text = "was replaced by another directory, which is locked again"
        else:
            os.close(lock)  # an open directory would keep its file system from being unmounted
            text = "leads to another file system"
        self._log.error("NSQ: %s %s", self._path, text)
        self._set_problem(self._reason())

    def _set_problem(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            self._log.error("NSQ: publishes are refused, and nothing is written: %s", problem)
        else:
            self._log.warning("NSQ: %s is the directory that this nsqd has loaded again", self._path)
        self.on_change()


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino


def _nothing() -> None:
    """Stand in for a callback that is not set."""
