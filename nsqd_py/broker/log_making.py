"""The logs of topics are made here, with what they need of the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent.pool

from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.places import RecordPlaces
from nsqd_py.queue.disk_limits import DiskSpace
from nsqd_py.queue.topic_policy import policy_of
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.threads import in_thread

if TYPE_CHECKING:
    from nsqd_py.options import NsqdOptions

# Of a topic that is limited in bytes: so many files hold all of it, and none need be smaller.
_FILES_OF_LIMITED = 8
_SMALLEST_FILE_BYTES = 64 * 1024


class LogMaker:
    """Makes logs, and does for them in threads what may take long. `options` are those of `nsqd_py.options`."""

    def __init__(self, directory: Path, options: NsqdOptions, space: DiskSpace, threadpool: Any, log: Log) -> None:
        self._directory = directory
        self._options = options
        self._space = space
        self._threadpool = threadpool
        self._log = log
        self._background = gevent.pool.Group()
        self._places = RecordPlaces()

    def make(self, topic_name: str) -> TopicLog:
        """A log with no files yet."""
        max_bytes = policy_of(self._options, topic_name).max_bytes
        file_bytes = self._options.max_bytes_per_file
        if max_bytes:  # space is freed by the file
            file_bytes = min(file_bytes, max(max_bytes // _FILES_OF_LIMITED, _SMALLEST_FILE_BYTES))
        log = TopicLog(
            self._directory, topic_name, file_bytes, self._report_damage, self._run_in_background, self._places
        )
        log.allocate_ahead(wanted=self._space.allocates_ahead())
        return log

    def _run_in_background(self, work: Callable[[], None]) -> None:
        """In a thread, by way of a greenlet: the pool may make its caller wait, which the loop cannot."""
        self._background.spawn(self._try_in_thread, work)

    def _try_in_thread(self, work: Callable[[], None]) -> None:
        try:
            in_thread(self._threadpool, work)
        except OSError as error:  # a file that is not needed any more is left; the next start removes it
            self._log.error("failed to remove a file - %s", error)

    def _report_damage(self, text: str) -> None:
        self._log.error("DISKQUEUE: %s", text)

    def join(self) -> None:
        """Return when all that was begun is done. Blocks this greenlet."""
        self._background.join()
