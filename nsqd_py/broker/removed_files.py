"""Restoring log files that another program removes while nsqd uses them.

Their content exists as long as nsqd has them open, and is lost with the process. So each is written again under its
name, from the open descriptor, before publishers learn that their messages are synced.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nsqd_py.diskqueue.files import COMPACT_SUFFIX, LogFile, sync_directory
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.private_files import open_file
from nsqd_py.runtime.threads import in_thread

_LOOK_AT_ALL_EVERY_NS = 1_000_000_000
_FEW_FILES = 50
_PIECE_BYTES = 4 * 1024 * 1024
_MOST_COPIES = 10


class RemovedFiles:
    """Finds removed log files and restores them."""

    def __init__(self, clock: Callable[[], int], threadpool: Any, report: Log) -> None:
        self._clock = clock
        self._threadpool = threadpool
        self._report = report
        self._looked_ns: dict[TopicLog, int] = {}

    def look(self, topic: Topic, log: TopicLog) -> OSError | None:
        """Restore removed files. Up to 50 files are all checked; of more files, the newest two, and all once a second.

        Return the error if that failed; it is tried again at the next sync. Blocks this greenlet.
        """
        now_ns = self._clock()
        files = log.files[-2:]
        # Checking a file takes 0.6 us.
        if len(log.files) <= _FEW_FILES or now_ns >= self._looked_ns.get(log, 0) + _LOOK_AT_ALL_EVERY_NS:
            self._looked_ns[log] = now_ns
            files = list(log.files)
        try:
            for file in files:
                if is_removed(file) and not topic.is_slow:
                    self._put_back(topic, log, file)
        except OSError as error:
            log.syncs.directory_error = error  # its content is on the disk under no name
            return error
        return None

    def look_at_the_end(self, topic: Topic, log: TopicLog) -> None:
        """Restore removed files at a stop, when nothing is written to the log any more. Raises OSError."""
        self.forget(log)
        for file in list(log.files):
            if is_removed(file):
                self._put_back(topic, log, file)

    def forget(self, log: TopicLog) -> None:
        self._looked_ns.pop(log, None)

    def _put_back(self, topic: Topic, log: TopicLog, file: LogFile) -> None:
        if file is log.files[-1]:
            log.leave_last_file()  # new messages go to another file
        for _ in range(_MOST_COPIES):
            if file not in log.files or file in log.busy_files:
                return  # it was dropped, or is being compacted
            copy = _Copy(file)
            try:
                in_thread(self._threadpool, copy.write)
            except BaseException:
                copy.abandon()
                raise
            if file not in log.files or copy.end_offset != file.end_offset or topic.is_slow:
                copy.abandon()  # only an empty file is still written to
                continue
            log.replace(file, copy.settle())
            file.close()
            log.damage.removed_files += 1
            self._report.error(
                "TOPIC(%s): %s was removed while it was in use; its %d bytes were written again",
                topic.name, file.path.name, file.end_offset,
            )  # fmt: skip
            return


def is_removed(file: LogFile) -> bool:
    """True if an open file has no name any more. Raises OSError.

    A file that is not open cannot be restored: reading and writing it fail.
    """
    return file.is_open and os.fstat(file.fileno()).st_nlink == 0


class _Copy:
    """A copy of a removed file that takes its name."""

    def __init__(self, file: LogFile) -> None:
        self.end_offset = file.end_offset
        self._file = file
        self._path = file.path.with_name(file.path.name + COMPACT_SUFFIX)
        self._source = file.duplicate()
        self._target = -1
        self._has_name = False

    def write(self) -> None:
        """Write the copy; runs in a thread. Raises OSError."""
        self._target = open_file(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        offset = 0
        while offset < self.end_offset:
            data = os.pread(self._source, min(_PIECE_BYTES, self.end_offset - offset), offset)
            if not data:
                break
            offset += os.pwrite(self._target, data, offset)
        os.fsync(self._target)
        self._take_name()
        sync_directory(self._path.parent)

    def _take_name(self) -> None:
        """Link the copy to the name. A different file that has the name now is renamed."""
        path = self._file.path
        while True:
            with contextlib.suppress(FileExistsError):
                os.link(self._path, path)
                self._has_name = True
                break
            os.rename(path, _free_name(path))
        self._path.unlink()

    def settle(self) -> LogFile:
        """Return the file that replaces the removed one."""
        os.close(self._source)
        return self._file.with_descriptor(self._target)

    def abandon(self) -> None:
        """Remove the copy."""
        os.close(self._source)
        if self._target >= 0:
            os.close(self._target)
        with contextlib.suppress(OSError):  # the next start removes it
            self._path.unlink(missing_ok=True)
            if self._has_name:
                self._file.path.unlink(missing_ok=True)


def _free_name(path: Path) -> Path:
    aside = path.with_name(path.name + ".damaged")
    while aside.exists():
        aside = aside.with_name(aside.name + "~")
    return aside
