"""Log files that another program removes or cuts while nsqd uses them: each is reported, and no longer written to."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.pqueues import Alarms
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.logs import Log

_CHECK_EVERY_NS = 1_000_000_000
_CHECKED_AT_ONCE = 50  # topics


class RemovedFiles:
    """Finds removed and cut log files, at syncs and once a second.

    problems  a sentence about the first such file of each topic
    """

    def __init__(self, clock: Callable[[], int], report: Log, alarms: Alarms, topics: Mapping[str, Topic]) -> None:
        self.problems: dict[Topic, str] = {}
        self._topics = topics
        self._to_check: Iterator[Topic] = iter(())
        self._alarm = alarms.alarm(self._check_some)
        self._clock = clock
        self._report = report

    def start(self) -> None:
        """Check the files of some topics once a second."""
        self._alarm.set(self._clock() + _CHECK_EVERY_NS)

    def stop(self) -> None:
        self._alarm.set(None)

    def _check_some(self, now_ns: int) -> None:
        self._alarm.set(now_ns + _CHECK_EVERY_NS)
        checked = list(islice(self._to_check, _CHECKED_AT_ONCE))
        if len(checked) < _CHECKED_AT_ONCE:
            self._to_check = iter(list(self._topics.values()))
        for topic in checked:
            if topic.log is not None and not topic.is_closed:
                self.check(topic, topic.log, topic.log.files)

    def look(self, topic: Topic, log: TopicLog, files: Sequence[LogFile]) -> OSError | None:
        """Check files that were synced; return an error if one of them was removed or cut."""
        self.check(topic, log, files)
        if not any(file.was_cut for file in files):
            return None
        error = log.syncs.directory_error = OSError(errno.EIO, self.problems.get(topic, "a log file was removed or cut"))
        return error

    def check(self, topic: Topic, log: TopicLog, files: Sequence[LogFile]) -> None:
        """Report the files that were removed or cut since the last call, and write to them no more."""
        for file in files:
            if topic.is_slow or file.cut_is_reported or not file.is_cut():  # checking one takes 0.6 us
                continue
            file.cut_is_reported = True
            log.damage.removed_files += 1
            text = f"{file.path.name} was removed or cut while it was in use: what is not in memory is lost when nsqd stops"
            self._report.error("TOPIC(%s): %s", topic.name, text)
            self.problems.setdefault(topic, text)
            if file is log.files[-1]:
                log.leave_last_file()

    def forget(self, topic: Topic) -> None:
        self.problems.pop(topic, None)
