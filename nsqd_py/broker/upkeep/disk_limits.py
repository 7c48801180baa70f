"""The limits of the disk and the process: write errors that last, free space, file descriptors, and removed log files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import gevent.event

from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.files.open_files import OPEN_FILES
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.threads import in_thread

_CAUSES = _WRITE, _SYNC, _POSITION = "write", "sync", "position"
_UNLIMITED = 1 << 62  # bytes, where the free space is not known
# Writers wait this long for a descriptor; this many of them open files at a time; this many topics are synced for them.
_LONGEST_WAIT_S = 30.0
_OPENED_AT_ONCE = 8
_SYNCED_AT_ONCE = 32
# The checks for removed log files: in the event loop, or in a thread while the disk is slow.
_CHECK_EVERY_NS = 1_000_000_000
_CHECK_SLOW_EVERY_NS = 5_000_000_000
_CHECKED_AT_ONCE = 50  # topics


# ---- write errors that last


class DiskHealth:
    """The write errors that last, by topic and by what could not be written.

    write_errors  number of failed writes to logs
    """

    def __init__(self, log: Log) -> None:
        self.write_errors = 0
        self._log = log
        self._errors: dict[tuple[str, Topic], OSError] = {}

    @property
    def problem(self) -> OSError | None:
        """Return the first error; None if there is none."""
        return next(iter(self._errors.values()), None)

    def errors(self) -> Iterator[tuple[Topic, OSError]]:
        """Yield each topic with an error that lasts, and the error."""
        for (_, topic), error in self._errors.items():
            yield topic, error

    def written(self, topic: Topic, error: OSError | None) -> None:
        """Record the result of a write to the topic's log."""
        self._note((_WRITE, topic), error)
        if error is not None:
            self.write_errors += 1

    def synced(self, topic: Topic, error: OSError | None) -> None:
        """Record the result of a sync of the topic's log."""
        # The same error is logged once.
        if error is not None and error is not self._errors.get((_SYNC, topic)):
            self._log.of_clients.error("TOPIC(%s): failed to sync - %s", topic.name, error)
        self._note((_SYNC, topic), error)

    def position_saved(self, topic: Topic, error: OSError | None) -> None:
        """Record the result of writing the position of one of its channels."""
        self._note((_POSITION, topic), error)

    def position_failed(self, topic: Topic, error: OSError) -> None:
        """Record that the topic's own position could not be written."""
        self._note((_POSITION, topic), error)
        self._log.of_clients.error("TOPIC(%s): failed to write its position - %s", topic.name, error)

    def forget(self, topic: Topic) -> None:
        for cause in _CAUSES:
            self._errors.pop((cause, topic), None)

    def _note(self, key: tuple[str, Topic], error: OSError | None) -> None:
        """Set or clear an error. A success also clears the write errors of topics without publishers now."""
        if error is not None:
            # Not the frames: they hold the messages of the write.
            self._errors[key] = error.with_traceback(None)
        elif self._errors:
            self._errors.pop(key, None)
            writes = [failed for failed in self._errors if failed[0] == _WRITE]
            for failed in writes:
                del self._errors[failed]


# ---- free space


class FreeSpace:
    """The free space of the disk that holds a directory. `total_bytes` is its size, 0 until it is known."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.total_bytes = 0

    def free_bytes(self) -> int:
        """Return the free bytes. The file system has the number in memory, also while the disk is slow."""
        try:
            statistics = os.statvfs(self._directory)
        except OSError:  # the write itself will report it
            return _UNLIMITED
        self.total_bytes = statistics.f_blocks * statistics.f_frsize
        return statistics.f_bavail * statistics.f_frsize


# ---- file descriptors


class DescriptorRelief:
    """Makes writers wait for a descriptor when all open files wait for a sync, and begins those syncs at once.

    flush  begins to sync up to the given number of topics
    """

    def __init__(self, flush: Callable[[int], None]) -> None:
        self._flush = flush
        self._synced = gevent.event.Event()

    @cached_property
    def _turns(self) -> Any:
        """Held by writers that have not opened their files yet."""
        from gevent.lock import Semaphore  # 1.1 MB of a start, see `GreenletLock`

        return Semaphore(_OPENED_AT_ONCE)

    def watch(self) -> None:
        """Begin, with the descriptor limit of this moment."""
        OPEN_FILES.use_limit()
        OPEN_FILES.on_full = partial(self._flush, _SYNCED_AT_ONCE)
        loop = gevent.get_hub().loop
        OPEN_FILES.on_crowded = partial(loop.run_callback_threadsafe, OPEN_FILES.make_room)

    @contextmanager
    def room(self) -> Iterator[None]:
        """Wait until a file may be opened. Raises OSError after 30 s. Blocks this greenlet."""
        deadline_s = monotonic() + _LONGEST_WAIT_S
        if not self._turns.acquire(timeout=_LONGEST_WAIT_S):
            raise _too_many()
        try:
            self._wait(deadline_s)
            yield
        finally:
            self._turns.release()

    def _wait(self, deadline_s: float) -> None:
        while not OPEN_FILES.has_room():
            self._synced.clear()
            if not self._synced.wait(max(0.0, deadline_s - monotonic())):
                raise _too_many()

    def synced(self) -> None:
        """Wake the waiting writers: a topic was synced, so its files may be closed."""
        self._synced.set()


def _too_many() -> OSError:
    return OSError(errno.EMFILE, "too many open files, and the disk is too slow to sync some for closing")


# ---- removed log files


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

    def start(self) -> None:
        """Check the files of some topics once a second."""
        self._alarm.set(self._services.clock() + _CHECK_EVERY_NS)

    def stop(self) -> None:
        self._alarm.set(None)

    def _check_some(self, now_ns: int) -> None:
        self._alarm.set(now_ns + _CHECK_EVERY_NS)
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
            if not file.cut_is_reported:
                self._report(topic, log, file)
            if self._can_restore(topic, log, file):
                self._restoring[file] = topic, gevent.spawn(self._restore, topic, log, file)
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
        found: list[tuple[LogFile, bool]] = []
        for file in files:
            file.pin()
        try:
            in_thread(self._services.threadpool, lambda: found.extend(_removed_of(files)))
        finally:
            for file in files:
                file.unpin()
            self._slow_check = None
            self._next_slow_check_ns = self._services.clock() + _CHECK_SLOW_EVERY_NS
        for file, has_name in found:
            topic, log = files[file]
            if topic.is_closed or file not in log.files:
                continue
            # A thread appends to it, or cuts it before it makes the next one.
            if topic.is_writing and file is log.files[-1]:
                continue
            if not file.cut_is_reported:
                self._report(topic, log, file)
            if not has_name and self._is_restorable(topic, log, file):
                self._restoring[file] = topic, gevent.spawn(self._restore, topic, log, file)

    def _report(self, topic: Topic, log: TopicLog, file: LogFile) -> None:
        file.cut_is_reported = True
        log.damage.removed_files += 1
        text = f"{file.path.name} was removed or cut while it was in use: what is not in memory is lost when nsqd stops"
        self._services.log.error("TOPIC(%s): %s", topic.name, text)
        self.problems.setdefault(topic, text)
        log.leave_removed(file)

    def _can_restore(self, topic: Topic, log: TopicLog, file: LogFile) -> bool:
        """True if a descriptor still has the content of a removed file, and no other file has its name."""
        return self._is_restorable(topic, log, file) and not os.path.lexists(file.path)

    def _is_restorable(self, topic: Topic, log: TopicLog, file: LogFile) -> bool:
        """True if the file is open, and nothing else is done with it."""
        if topic.is_closed or file not in log.files or file in log.busy_files or file in self._restoring:
            return False
        return file.is_open

    def _restore(self, topic: Topic, log: TopicLog, file: LogFile) -> None:
        """Write a removed file back from its descriptor, which has its content as long as it is open."""
        restored: list[LogFile] = []
        log.busy_files.add(file)
        file.pin()
        try:
            in_thread(self._services.threadpool, lambda: restored.append(file.write_back()))
        except OSError as error:
            self._services.log.of_clients.warning(
                "TOPIC(%s): cannot write %s back - %s", topic.name, file.path.name, error
            )
        finally:
            file.unpin()
            log.busy_files.discard(file)
            del self._restoring[file]
        if not restored:
            return
        if topic.is_closed or file not in log.files:  # its messages are in the file that has its name now
            restored[0].close()
            return
        log.replace(file, restored[0])
        file.close()
        self.restored(topic, log, file.path.name)

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


def _removed_of(files: Iterable[LogFile]) -> Iterator[tuple[LogFile, bool]]:
    """Yield the files that were removed or cut, and for each if there is a file of its name."""
    for file in files:
        if file.is_cut():
            yield file, os.path.lexists(file.path)
