"""Log files that another program removed or cut while nsqd uses them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import gevent
import gevent.event

from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.runtime.threads import in_thread

# The checks: in the event loop, or in a thread while the disk is slow.
_CHECK_EVERY_NS = 1_000_000_000
_CHECK_SLOW_EVERY_NS = 5_000_000_000
_CHECKED_AT_ONCE = 50  # topics


class RemovedFiles:
    """Finds removed and cut log files, at syncs and once a second, and writes removed ones back.

    While the disk is slow, a thread checks for them, once in 5 s. What was cut is completed when the disk is fast again.

    problems  a sentence about the first such file of each topic
    on_gone   called each second with a file that cannot be written back from its descriptor
    """

    def __init__(self, services: BrokerServices, topics: Mapping[str, Topic]) -> None:
        self.problems: dict[Topic, str] = {}
        self.on_gone: Callable[[Topic, LogFile], None] = lambda topic, file: None
        self._restoring: dict[LogFile, tuple[Topic, Any]] = {}  # with the greenlet that waits for the thread
        self._topics = topics
        self._to_check: Iterator[Topic] = iter(())
        self._slow: dict[Topic, None] = {}  # to be checked in a thread
        self._slow_check: Any = None  # the greenlet that waits for that thread
        self._next_slow_check_ns = 0
        self._alarm = services.alarms.alarm(self._check_some)
        self._services = services
        self._data_path = services.data_path

    def start(self) -> None:
        """Check the files of some topics once a second."""
        self._alarm.set(self._services.clock() + _CHECK_EVERY_NS)

    def stop(self) -> None:
        self._alarm.set(None)

    def _check_some(self, now_ns: int) -> None:
        self._alarm.set(now_ns + _CHECK_EVERY_NS)
        if self._data_path.problem:
            return
        checked = list(islice(self._to_check, _CHECKED_AT_ONCE))
        if len(checked) < _CHECKED_AT_ONCE:
            self._to_check = iter(list(self._topics.values()))
        for topic in checked:
            if topic.log is None or topic.is_closed:
                continue
            if topic.is_slow:
                self._slow[topic] = None
            else:
                self.check(topic, topic.log, topic.log.files)
        if self._slow and not self._slow_check and now_ns >= self._next_slow_check_ns:
            self._slow_check = gevent.spawn(self._check_slow)

    def check_synced(self, topic: Topic, log: TopicLog, files: Sequence[LogFile]) -> OSError | None:
        """Check files that were synced; return an error if one of them was removed or cut by another program."""
        files = [file for file in files if file in log.files]  # nsqd itself drops files, also during a sync
        error: OSError
        if not self._data_path.is_here():
            error = self._data_path.refusal()
        else:
            self.check(topic, log, files)
            if not any(file.was_cut for file in files):
                return None
            error = OSError(errno.EIO, self.problems.get(topic, "a log file was removed or cut"))
        log.syncs.directory_error = error
        return error

    def check(self, topic: Topic, log: TopicLog, files: Sequence[LogFile]) -> None:
        """Report the files that were removed or cut since the last call, write to them no more, and write removed ones back."""
        for file in files:
            if topic.is_slow or not file.is_cut():  # checking one takes 0.6 us
                continue
            if not self._data_path.is_here():  # its files come back with it
                return
            self._report(topic, log, file)
            if self._is_restorable(topic, log, file) and not os.path.lexists(file.path):
                self._begin_to_restore(topic, log, file)
            elif file not in self._restoring and file not in log.busy_files:
                self.on_gone(topic, file)

    def _check_slow(self) -> None:
        """Check the files of some topics whose files the event loop must not touch."""
        topics = list(islice(self._slow, _CHECKED_AT_ONCE))
        for topic in topics:
            del self._slow[topic]
        files: dict[LogFile, tuple[Topic, TopicLog]] = {}
        for topic in topics:
            if topic.log is not None:
                files |= dict.fromkeys(topic.log.files, (topic, topic.log))
        for file in files:
            file.pin()
        try:
            found = in_thread(self._services.threadpool, _removed_of, files)
        finally:
            for file in files:
                file.unpin()
            self._slow_check = None
            self._next_slow_check_ns = self._services.clock() + _CHECK_SLOW_EVERY_NS
        if found and not self._data_path.is_here():
            return
        for file, has_name in found:
            topic, log = files[file]
            if topic.is_closed or file not in log.files:
                continue
            # A thread appends to it, or cuts it before it makes the next one.
            if topic.is_writing and file is log.files[-1]:
                continue
            self._report(topic, log, file)
            if not has_name and self._is_restorable(topic, log, file):
                self._begin_to_restore(topic, log, file)

    def _report(self, topic: Topic, log: TopicLog, file: LogFile) -> None:
        """Report a file that was removed or cut, once."""
        if file.cut_is_reported:
            return
        file.cut_is_reported = True
        file.was_cut = True
        log.damage.removed_files += 1
        text = f"{file.name} was removed or cut while it was in use: what is not in memory is lost when nsqd stops"
        self._services.log.error("TOPIC(%s): %s", topic.name, text)
        self.problems.setdefault(topic, text)
        log.leave_removed(file)

    def _begin_to_restore(self, topic: Topic, log: TopicLog, file: LogFile) -> None:
        self._restoring[file] = topic, gevent.spawn(self._restore, topic, log, file)

    def _is_restorable(self, topic: Topic, log: TopicLog, file: LogFile) -> bool:
        """True if the descriptor still has the content of the file, and nothing else is done with it."""
        if topic.is_closed or file not in log.files or file in log.busy_files or file in self._restoring:
            return False
        return file.is_open

    def _restore(self, topic: Topic, log: TopicLog, file: LogFile) -> None:
        """Write a removed file back from its descriptor, which has its content as long as it is open."""
        log.busy_files.add(file)
        file.pin()
        try:
            restored = in_thread(self._services.threadpool, file.write_back)
        except OSError as error:
            self._services.log.of_clients.warning(
                "TOPIC(%s): cannot write %s back - %s", topic.name, file.name, error
            )
            return
        finally:
            file.unpin()
            log.busy_files.discard(file)
            del self._restoring[file]
        if topic.is_closed or file not in log.files:  # its messages are in the file that has its name now
            restored.close()
            return
        log.replace(file, restored)
        file.close()
        self.restored(topic, log, file.name)

    def restored(self, topic: Topic, log: TopicLog, name: str) -> None:
        """Note that a file that was removed, cut or replaced is complete again."""
        log.damage.restored_files += 1
        self._services.log.warning(
            "TOPIC(%s): %s, which was removed or cut while it was in use, is written back: nothing is lost",
            topic.name,
            name,
        )
        if not any(other.was_cut for other in log.files):
            self.problems.pop(topic, None)

    def is_restoring(self, topic: Topic) -> bool:
        """True while a thread writes a file of this topic back."""
        return any(owner is topic for owner, _ in self._restoring.values())

    def settle(self) -> None:
        """Wait until no thread checks files or writes one back. Blocks this greenlet while one does."""
        if self._slow_check is not None:
            self._slow_check.join()
        gevent.joinall([greenlet for _, greenlet in self._restoring.values()])

    def forget(self, topic: Topic) -> None:
        self.problems.pop(topic, None)
        self._slow.pop(topic, None)


def _removed_of(files: Iterable[LogFile]) -> list[tuple[LogFile, bool]]:
    """Return the files that were removed or cut, and for each if there is a file of its name."""
    return [(file, os.path.lexists(file.path)) for file in files if file.is_cut()]
