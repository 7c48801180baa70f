"""Log files that another program removes or cuts while nsqd uses them: a removed one is restored, a cut one reported.

Their content exists as long as nsqd has them open, and is lost with the process. So each is written again under its
name, from the open descriptor, before publishers learn that their messages are synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from nsqd_py.diskqueue.files import COMPACT_SUFFIX, LogFile, sync_directory
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.pqueues import Alarms
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.private_files import open_file
from nsqd_py.runtime.threads import in_thread

_LOOK_AT_ALL_EVERY_NS = 1_000_000_000
_FEW_FILES = 50
_PIECE_BYTES = 4 * 1024 * 1024
_MOST_COPIES = 10
_CHECKED_AT_ONCE = 50  # topics, each with up to 50 files


class RemovedFiles:
    """Finds removed and cut log files, at syncs and once a second, and restores removed ones.

    cut  a sentence about the first file of each topic that was cut
    """

    def __init__(
        self, clock: Callable[[], int], threadpool: Any, report: Log, alarms: Alarms, topics: Mapping[str, Topic]
    ) -> None:
        self.cut: dict[Topic, str] = {}
        self._topics = topics
        self._to_check: Iterator[Topic] = iter(())
        self._alarm = alarms.alarm(self._check_some)
        self._clock = clock
        self._threadpool = threadpool
        self._report = report
        self._looked_ns: dict[TopicLog, int] = {}

    def start(self) -> None:
        """Check some topics a second for files that were cut."""
        self._alarm.set(self._clock() + _LOOK_AT_ALL_EVERY_NS)

    def stop(self) -> None:
        self._alarm.set(None)

    def _check_some(self, now_ns: int) -> None:
        self._alarm.set(now_ns + _LOOK_AT_ALL_EVERY_NS)
        checked = list(islice(self._to_check, _CHECKED_AT_ONCE))
        if len(checked) < _CHECKED_AT_ONCE:
            self._to_check = iter(list(self._topics.values()))
        for topic in checked:
            if topic.log is not None and not topic.is_closed:
                with contextlib.suppress(OSError):  # the next sync reports it
                    self._find_cut(topic, topic.log, topic.log.files[-_FEW_FILES:])

    def _find_cut(self, topic: Topic, log: TopicLog, files: Iterable[LogFile]) -> OSError | None:
        """Report files that were cut since the last call; return an error if the newest file was. Raises OSError.

        What was cut off is lost, unless it is in memory. Nothing more is written to such a file.
        """
        error = None
        for file in files:
            # A file may have been replaced by its copy, or dropped.
            if topic.is_slow or file.cut_is_reported or not file.is_cut() or file not in log.files:
                continue
            file.cut_is_reported = True
            log.damage.removed_files += 1
            text = f"{file.path.name} was cut while it was in use: messages in it are lost, unless they are in memory"
            self._report.error("TOPIC(%s): %s", topic.name, text)
            self.cut.setdefault(topic, text)
            if file is log.files[-1]:
                log.leave_last_file()
                error = OSError(errno.EIO, text)
        return error

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
            error = self._find_cut(topic, log, files)
        except OSError as failure:
            error = failure
        if error is not None:
            log.syncs.directory_error = error  # the content of a file is not on the disk, or under no name
        return error

    def look_at_the_end(self, topic: Topic, log: TopicLog) -> None:
        """Restore removed files at a stop, when nothing is written to the log any more. Raises OSError."""
        self.forget(topic)
        self._find_cut(topic, log, list(log.files))
        for file in list(log.files):
            if is_removed(file):
                self._put_back(topic, log, file)

    def forget(self, topic: Topic) -> None:
        self.cut.pop(topic, None)
        if topic.log is not None:
            self._looked_ns.pop(topic.log, None)

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
                topic.name,
                file.path.name,
                file.end_offset,
            )
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
