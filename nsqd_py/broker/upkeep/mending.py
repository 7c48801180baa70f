"""Damage in the logs of a primary: counted, said once for each file, and repaired from another copy if there is one.

Other copies are those of standbys, and the store. Damaged bytes are repaired in the file; a file that is gone, or is another
one, is written again, with what its open descriptor still has and what the other copy has. A consumer that meets damaged bytes
waits until they are repaired, or until it is known that no copy has them: then its messages are lost, and counted as lost.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gevent

from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.broker.upkeep.removed_files import RemovedFiles
from nsqd_py.broker.upkeep.scrub import ScrubbedFile, damage_text
from nsqd_py.diskqueue.checking import damage_in, numbers_in
from nsqd_py.diskqueue.files.log_file import LogFile, sync_directory, topic_of_log
from nsqd_py.diskqueue.journals.ranges import Range, count_of
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from nsqd_py.errors import NsqdError
from nsqd_py.runtime.private_files import opened
from nsqd_py.runtime.threads import in_thread

# The delays of consumers between two attempts rise to a minute. If no copy could be asked so often, the messages are lost.
_MOST_ATTEMPTS = 8
_FIRST_DELAY_S = 5.0
_LONGEST_DELAY_S = 600.0
_TRY_AGAIN_S = 600.0
_HEADER = (0, FILE_HEADER_BYTES)


class Copy(Protocol):
    """Another copy of the logs.

    name  for people: "a standby", "the store"
    """

    @property
    def name(self) -> str: ...

    def fill(self, log: TopicLog, path: Path, file: LogFile, ranges: list[Range]) -> list[Range]:
        """Repair these ranges of a log file, or of its new version at `path`. Return those that this copy does not have.

        Blocks this greenlet. Raises OSError and NsqdError if the copy could not be asked.
        """


class Filled(NamedTuple):
    """The result of a repair.

    left    the ranges that are not repaired
    reason  why not; "" if no copy has them
    names   of the copies that had something
    """

    left: list[Range]
    reason: str = ""
    names: Sequence[str] = ()


class Repairs:
    """All other copies of the logs, which are asked one after the other. `copies` returns those that there are now."""

    def __init__(self, copies: Callable[[], Iterable[Copy]]) -> None:
        self._copies = copies

    def is_possible(self) -> bool:
        """True if there is another copy now."""
        return any(True for _ in self._copies())

    def fill(self, log: TopicLog, path: Path, file: LogFile, ranges: list[Range]) -> Filled:
        """Repair these ranges of a log file, or of its new version at `path`. Blocks this greenlet."""
        reason = "" if self.is_possible() else "there is no other copy now"
        names: dict[str, None] = {}
        for copy in list(self._copies()):
            before = ranges
            try:
                ranges = copy.fill(log, path, file, ranges)
            except (OSError, NsqdError) as error:
                reason = str(error)
            if ranges != before:
                names[copy.name] = None
            if not ranges:
                return Filled([], "", list(names))
        return Filled(ranges, reason, list(names))


_Key = tuple[Topic, LogFile]


@dataclass(eq=False, repr=False)
class LogFiles:
    """The log files of a primary, for its scrub and its consumers.

    repairs         the other copies
    damaged_bytes   found since the start
    repaired_bytes  of these
    """

    _services: BrokerServices
    _topics: Mapping[str, Topic]
    _removed_files: RemovedFiles
    repairs: Repairs
    damaged_bytes: int = 0
    repaired_bytes: int = 0
    _waiting: dict[_Key, list[Range]] = field(default_factory=dict)  # what must be repaired
    _attempts: dict[tuple[LogFile, int], int] = field(default_factory=dict)  # failed ones, by file and offset
    _gone: dict[_Key, None] = field(default_factory=dict)
    # The time, and the delay after it.
    _next_tries: dict[LogFile, tuple[float, float]] = field(default_factory=dict)
    _next_try_s: float = 0.0
    # What was said of files that are not repaired.
    _reported: dict[LogFile, str] = field(default_factory=dict)
    _greenlet: Any = None

    def __post_init__(self) -> None:
        self._log = self._services.log
        self._threadpool = self._services.threadpool
        self._removed_files.on_gone = self.gone

    def stop(self) -> None:
        """End after what a thread does at this moment: the end of nsqd may write to the same file. Blocks this greenlet."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None

    # ---- for the scrub

    def files(self) -> Sequence[_Key]:
        found = []
        for topic in self._topics.values():
            if topic.log is not None:
                found += [(topic, file) for file in topic.log.files]
        return found

    def file(self, key: _Key) -> ScrubbedFile | None:
        topic, file = key
        log = topic.log
        if log is None or topic.is_closed or file not in log.files:
            return None
        return ScrubbedFile(file.path, file.salt, file.end_offset, is_closed=file is not log.files[-1])

    def damaged(self, key: _Key, ranges: list[Range]) -> None:
        """Report damaged bytes that the scrub has found, and have them repaired."""
        new = self._note(key, ranges)
        can_repair = self.repairs.is_possible() or ranges[0] == _HEADER  # which this process knows itself
        if new and not can_repair:
            self._log.error("SCRUB: %s: %s; kept as *.damaged", key[1].path.name, damage_text(new))
        if can_repair and not all(self._is_hopeless(key[1], start) for start, _ in ranges):
            self._want(key, ranges)

    def end_pass(self) -> None:
        """Let a later pass try again what could not be repaired."""
        now_s = time.monotonic()
        if now_s < self._next_try_s:
            return
        self._next_try_s = now_s + _TRY_AGAIN_S
        self._attempts.clear()
        present = {file for _, file in self.files()}
        self._reported = {file: text for file, text in self._reported.items() if file in present}
        self._next_tries = {file: tries for file, tries in self._next_tries.items() if file in present}

    # ---- for consumers

    def mend(self, file: LogFile, start: int, end: int) -> bool:
        """Have damaged bytes repaired that a consumer met. Return False if that is not possible: its messages are lost."""
        topic = self._topics.get(topic_of_log(file.name) or "")
        if topic is None or topic.log is None:
            return False
        if not self.repairs.is_possible() or self._is_hopeless(file, start):
            return False
        self._note((topic, file), [(start, end)])
        self._want((topic, file), [(start, end)])
        return True

    def _is_hopeless(self, file: LogFile, start: int) -> bool:
        return self._attempts.get((file, start), 0) >= _MOST_ATTEMPTS

    # ---- for files that another program has removed, cut or replaced

    def gone(self, topic: Topic, file: LogFile) -> None:
        """Have a file completed of which the descriptor does not have all, or whose name has another file."""
        now_s = time.monotonic()
        next_s, delay_s = self._next_tries.get(file, (0.0, _FIRST_DELAY_S))
        if (file.is_open or self.repairs.is_possible()) and now_s >= next_s:
            next_delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
            self._next_tries[file] = now_s + delay_s, next_delay_s
            self._gone.setdefault((topic, file))
            self._start()

    # ---- repairing, in a greenlet

    def _note(self, key: _Key, ranges: list[Range]) -> list[Range]:
        """Count damaged bytes; return the ranges that were not known."""
        topic, file = key
        log = topic.log
        assert log is not None
        new = []
        for start, end in ranges:
            new_bytes = log.damage.note(file, start, end)
            if new_bytes:
                self.damaged_bytes += new_bytes
                new.append((start, end))
        return new

    def _want(self, key: _Key, ranges: list[Range]) -> None:
        self._waiting[key] = sorted({*self._waiting.get(key, []), *ranges})
        self._start()

    def _start(self) -> None:
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        try:
            while self._waiting or self._gone:
                if self._gone:
                    key = next(iter(self._gone))
                    del self._gone[key]
                    self._guarded(key, self._complete)
                else:
                    key = next(iter(self._waiting))
                    ranges = self._waiting.pop(key)
                    self._guarded(key, partial(self._repair_bytes, ranges=ranges))
        finally:
            self._greenlet = None

    def _guarded(self, key: _Key, work: Any) -> None:
        """Call `work` while the file can be neither dropped nor compacted."""
        topic, file = key
        log = topic.log
        if log is None or topic.is_closed or file not in log.files or file in log.busy_files:
            return
        log.busy_files.add(file)
        try:
            work(topic, log, file)
        except Exception as error:  # noqa: BLE001 - after a bug with one file, the others must be repaired
            self._log.exception("SCRUB: failed to repair %s - %r", file.name, error)
        finally:
            log.busy_files.discard(file)

    def _repair_bytes(self, topic: Topic, log: TopicLog, file: LogFile, ranges: list[Range]) -> bool:
        """Return True if all is repaired."""
        others = ranges
        if ranges[0] == _HEADER:
            file.write_header()  # here: in a thread, the name might be that of another log by then
            in_thread(self._threadpool, _sync, file.path)
            others = ranges[1:]
        left, reason, names = Filled([])
        if others:
            left, reason, names = self.repairs.fill(log, file.path, file, others)
        for start, end in ranges:
            inside = [each for each in left if start <= each[0] < end]
            self.repaired_bytes += log.damage.repaired(file, start, end, inside)
            for offset, _ in inside:
                # Without a reason, no copy has it.
                if reason:
                    self._attempts[file, offset] = self._attempts.get((file, offset), 0) + 1
                else:
                    self._attempts[file, offset] = _MOST_ATTEMPTS
        log.chunks.forget()
        if others and left != ranges:
            self._bring_back(topic, file, others)
        text = "it is repaired"
        if others:
            text = f"all are repaired from {' and '.join(names)}"
        if left:
            text = f"{count_of(left)} of them are not repaired: {reason or 'no other copy has them'}"
        text = f"{damage_text(ranges)}; {text}"
        if not left or self._reported.get(file) != text:
            self._log.error("SCRUB: %s: %s", file.name, text)
        self._reported.pop(file, None)
        if left:
            self._reported[file] = text
        return not left

    def _bring_back(self, topic: Topic, file: LogFile, ranges: list[Range]) -> None:
        """Queue the messages in these ranges of a file again in channels that have counted them as lost."""
        try:
            found = in_thread(self._threadpool, numbers_in, file.path, file.salt, ranges)
        except OSError:  # they come back at the next start
            return
        count = sum(channel.find_lost(found) for channel in topic.channels.values())
        if count:
            self._log.warning(
                "TOPIC(%s): %d messages that were lost are repaired, and are delivered", topic.name, count
            )

    def _complete(self, topic: Topic, log: TopicLog, file: LogFile) -> None:
        """Complete a file that was cut, or write it again if it is gone or another one."""
        name = file.name
        ranges = self._damage_in_named_file(file)
        if ranges is not None:
            if ranges:
                self._note((topic, file), ranges)
                if not self._repair_bytes(topic, log, file, ranges):
                    return
            restored = file.twin()
        else:
            written = self._write_again(topic, log, file)
            if written is None:
                return
            if topic.is_closed or file not in log.files:  # its topic was deleted, with the new file
                written.close()
                return
            restored = written
        restored.mark_synced()
        log.replace(file, restored)
        file.close()
        self._removed_files.restored(topic, log, name)

    def _damage_in_named_file(self, file: LogFile) -> list[Range] | None:
        """Return the damaged ranges of the file that has the name; None if that is another one, or there is none."""
        try:
            if file.is_open and not os.path.samestat(os.stat(file.path), os.fstat(file.fileno())):
                return None
            found = self._damage_in(file.path, file)
        except OSError:
            return None
        is_other = not file.is_open and count_of(found) >= file.end_offset
        return None if is_other else found

    def _damage_in(self, path: Path, file: LogFile) -> list[Range]:
        """Return the damaged ranges of a file, or of its new version at `path`. Raises OSError."""
        return in_thread(self._threadpool, damage_in, path, file.salt, file.end_offset)

    def _write_again(self, topic: Topic, log: TopicLog, file: LogFile) -> LogFile | None:
        """Return a new file with the name and the content of this one; None if that must be tried again."""
        file.pin()
        try:
            temporary, descriptor = in_thread(self._threadpool, file.salvage)
        except OSError as error:
            self._log.error("SCRUB: %s cannot be written again - %s", file.name, error)
            return None
        finally:
            file.unpin()
        try:
            ranges = self._damage_in(temporary, file)
            left, reason, _ = Filled([])
            if ranges:
                left, reason, _ = self.repairs.fill(log, temporary, file, ranges)
            self._note((topic, file), ranges)
            if reason:  # else no copy has the rest, and some of it is better than nothing
                raise OSError(errno.EIO, f"{count_of(left)} bytes are missing: {reason}")
            in_thread(self._threadpool, os.fsync, descriptor)
            if topic.is_closed or file not in log.files:
                raise OSError(errno.ENOENT, "its topic is deleted")
            if os.path.lexists(file.path):
                os.rename(file.path, _unused(file.path.with_name(f"{file.name}.damaged")))
            os.rename(temporary, file.path)
            in_thread(self._threadpool, sync_directory, file.path.parent)
            self.repaired_bytes += log.damage.repaired(file, 0, file.end_offset, left)
        except BaseException as error:
            os.close(descriptor)
            temporary.unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            self._log.error("SCRUB: %s cannot be written again - %s", file.name, error.strerror or error)
            return None
        return file.same_as(descriptor)


def _sync(path: Path) -> None:
    with opened(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)


def _unused(path: Path) -> Path:
    """Return the path, or the next one that no file has."""
    while os.path.lexists(path):
        path = path.with_name(f"{path.name}~")
    return path
