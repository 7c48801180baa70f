"""The `Housekeeper` deletes what no channel needs and nothing retains.

It trims the memory of topics, deletes files that are not needed, and compacts files of which little is needed. It decides in
the event loop a few times a second. Threads do the work, one file at a time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gevent

from nsqd_py.broker.disk.journal_writer import JOURNAL_DELAY_NS, SaveResult
from nsqd_py.broker.disk.slow_disk import in_timed_thread
from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.broker.upkeep.disk_health import DiskHealth
from nsqd_py.broker.upkeep.needed import living, living_of, retained_from
from nsqd_py.diskqueue.compaction import Compaction, Unmovable, alive_bytes, is_worth_moving, moved_bytes
from nsqd_py.diskqueue.files.log_file import LogFile, sync_directory
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.runtime.threads import in_thread

_PAUSE_NS = 250_000_000
_PAUSE_AFTER_FAILURE_NS = 30_000_000_000
_PAUSE_WHILE_SLOW_NS = 1_000_000_000
_BUSY_PART = 20  # deciding may take 1/20 of the time


@dataclass(eq=False, repr=False)
class Housekeeper:
    """Cleans up topics whose channels have advanced, and compacts their files.

    While the disk is slow, threads drop the files of topics whose channels have journals, and the rest waits: a disk that
    is never fast for long must not fill up. Topics with a retention time are checked repeatedly.

    _write_position  writes the number up to which a topic's messages are finished
    _save_positions  writes the positions of a topic's channels; returns False if that must wait
    _save_in_thread  does the same in a thread, and blocks its greenlet
    """

    _services: BrokerServices
    _disk: DiskHealth
    _write_position: Callable[[Topic, int], None]
    _save_positions: Callable[[Topic], bool]
    _save_in_thread: Callable[[Topic], bool]
    _to_clean: dict[Topic, bool] = field(default_factory=dict)  # True if it makes room
    _to_compact: dict[Topic, None] = field(default_factory=dict)
    _not_before_ns: int = 0
    _greenlet: Any = None
    # The topic whose file a thread removes, and the greenlet that waits for it.
    _removing: tuple[Topic, Any] | None = None
    _is_paused: bool = False

    def __post_init__(self) -> None:
        services = self._services
        self._log = services.log
        self._clock = services.clock
        self._disk_speed = services.disk_speed
        self._data_path = services.data_path
        self._clean_alarm = services.alarms.alarm(self._clean_up_all)
        self._compact_alarm = services.alarms.alarm(lambda _now_ns: self._start())

    def saved(self, saved: list[SaveResult]) -> None:
        """Handle the results of a round of journal writes."""
        for topic, channel, error in saved:
            self._disk.position_saved(topic, error)
            if error is not None:
                self._log.of_clients.error(
                    "CHANNEL(%s): failed to write its position - %s", channel.name, error
                )
            self._to_clean.setdefault(topic, False)
            self._check_if_slow(topic)
        self._clean_up_all(self._clock())

    def _clean_up_all(self, now_ns: int) -> None:
        if self._is_paused:
            return
        for _ in range(len(self._to_clean)):
            if self._disk_speed.is_slow:  # it can wait
                if not self._is_paused:
                    self._clean_alarm.set(now_ns + JOURNAL_DELAY_NS)
                return
            topic = next(iter(self._to_clean))
            makes_room = self._to_clean.pop(topic)
            if not topic.is_closed:
                self._disk_speed.timed(partial(self._save_without_channels, topic))
                self.clean_up(topic, makes_room=makes_room)

    def _save_without_channels(self, topic: Topic) -> None:
        """Write the topic's own position if all its channels are ephemeral, and so have no journals."""
        if topic.log is None or topic.has_journals:
            return
        try:
            self._write_position(topic, topic.retained_floor)
        except OSError as error:
            self._disk.position_failed(topic, error)

    def clean_up(self, topic: Topic, *, makes_room: bool = False) -> None:
        """Trim the topic's memory, and drop or compact its files; while the disk is slow, the files wait."""
        topic.trim_memory()
        if topic.log is not None:
            is_too_early = self._disk_speed.is_slow or bool(self._data_path.problem)
            if is_too_early or (makes_room and topic.is_writing):
                self._clean_later(topic, makes_room=makes_room)
            elif makes_room:
                self._close_unneeded(topic, topic.log)
            if is_too_early:
                return
            try:
                self.drop_unneeded(topic)
            except OSError as error:
                self._log.of_clients.error("TOPIC(%s): failed to remove a file - %s", topic.name, error)
            self.check_soon(topic)
            if makes_room:
                topic.log.free_spare()
                if self._disk_speed.is_slow:
                    self._clean_later(topic, makes_room=True)

    def forget(self, topic: Topic) -> None:
        """Let go of a deleted topic, which would wait until the disk is fast."""
        self._to_clean.pop(topic, None)
        self._to_compact.pop(topic, None)

    def _clean_later(self, topic: Topic, *, makes_room: bool = False) -> None:
        if topic.is_closed:
            return
        self._to_clean[topic] = makes_room or self._to_clean.get(topic, False)
        self._check_if_slow(topic)
        if not self._is_paused:
            self._clean_alarm.set_no_later(self._clock() + JOURNAL_DELAY_NS)

    def _check_if_slow(self, topic: Topic) -> None:
        """While the disk is slow, do what need not wait until it is fast."""
        if self._disk_speed.is_slow and not topic.is_closed:
            topic.trim_memory()
            self.check_soon(topic)

    def make_room(self, topic: Topic) -> None:
        """Free all space that can be freed, also in the file that is being written; while the disk is slow, this waits.

        If that file is not needed, it is dropped.
        This is for a topic that was emptied, and for all topics when the disk is short of space.
        """
        self.clean_up(topic, makes_room=True)

    def _close_unneeded(self, topic: Topic, log: TopicLog) -> None:
        if not log.files:
            return
        first_seq = log.files[-1].first_seq
        if not topic.is_needed(first_seq, log.next_seq):
            with contextlib.suppress(OSError):  # a full disk has no room for a new file
                self._disk_speed.timed(log.roll)

    # ---- files

    def check_soon(self, topic: Topic) -> None:
        """Check the topic soon: messages were finished, or it has a new file."""
        if topic.log is not None and len(topic.log.files) > 1:
            self._wait_for(topic)

    def _wait_for(self, topic: Topic) -> None:
        self._to_compact[topic] = None
        if self._is_paused:
            return
        if self._greenlet is None and self._compact_alarm.due_ns is None:
            self._compact_after_a_pause()

    def _compact_after_a_pause(self) -> None:
        self._compact_alarm.set(max(self._clock() + _PAUSE_NS, self._not_before_ns))

    def drop_unneeded(self, topic: Topic) -> None:
        """Drop files that neither a channel nor retention needs, while the disk is fast. Raises OSError.

        If the removal of one takes long, the others wait until the disk is fast again.
        """
        if topic.log is not None:
            retained = self._retained_from(topic)
            topic.log.drop_unneeded(partial(self._is_needed, topic), retained, topic.disk_speed.attempt)
            if topic.disk_speed.is_slow:
                self._clean_later(topic)

    def _retained_from(self, topic: Topic) -> int:
        return retained_from(topic, self._services.wall_clock(), self._clock())

    def _is_needed(self, topic: Topic, low: int, high: int) -> bool:
        """True if a file must stay: it is needed, or the positions of its channels could not be written first.

        A file that went before the positions would be reported missing at the next start.
        """
        if topic.is_needed(low, high) or not self._are_saved(topic):
            return True
        self._save_without_channels(topic)
        return False

    def _are_saved(self, topic: Topic) -> bool:
        """Write the positions of a topic; False while a thread writes them, True on a full disk, which needs space."""
        try:
            return self._save_positions(topic)
        except OSError:
            return True

    def _drop_in_threads(self, topic: Topic) -> None:
        """Drop unneeded files while the disk is slow: threads write the positions, and remove the files.

        Blocks this greenlet. Raises OSError.
        """
        log = topic.log
        if log is None or not topic.has_journals:
            return
        retained = self._retained_from(topic)
        for file in list(log.unneeded(topic.is_needed, retained)):
            # A thread takes time: the topic may be deleted then, or a channel created that needs the file.
            if self._is_paused or not self._save_in_thread(topic) or topic.is_closed:
                return
            is_free = file in log.files and file not in log.busy_files
            if is_free and not topic.is_needed(file.first_seq, file.end_seq):
                self._remove_in_thread(topic, log, file)

    def _remove_in_thread(self, topic: Topic, log: TopicLog, file: LogFile) -> None:
        """Remove one file; if that fails, it stays. Blocks this greenlet. Raises OSError."""
        threadpool = self._services.threadpool
        log.let_go(file)
        renaming = gevent.spawn(in_timed_thread, threadpool, self._disk_speed, file.discard)
        self._removing = topic, renaming
        try:
            (finish,) = renaming.get()
        except BaseException:
            log.take_back(file)
            raise
        finally:
            self._removing = None
        in_thread(threadpool, finish)

    def is_removing(self, topic: Topic) -> bool:
        """True while a thread removes a file of this topic, whose name a file of a new topic must not have."""
        return self._removing is not None and self._removing[0] is topic

    def settle(self) -> None:
        """Wait until no thread removes a file. May block this greenlet."""
        while self._removing is not None:
            self._removing[1].join()
            gevent.sleep(0)  # so that other greenlets that wait for it go on

    def pause(self) -> None:
        """Begin nothing new until `resume`, and wait for the running work. Blocks this greenlet."""
        self._is_paused = True
        self._compact_alarm.set(None)
        self._clean_alarm.set(None)
        if self._greenlet is not None:
            self._greenlet.join()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._is_paused = False
        if self._to_compact:
            self._compact_after_a_pause()
        if self._to_clean:
            self._clean_alarm.set(self._clock() + JOURNAL_DELAY_NS)

    # ---- in its greenlet

    def _start(self) -> None:
        if self._greenlet is None and not self._is_paused:
            self._greenlet = gevent.spawn(self.run)

    def run(self) -> None:
        """Check the waiting topics. Blocks this greenlet."""
        waiting = list(self._to_compact)
        self._to_compact = {}
        pause_ns = _PAUSE_NS
        try:
            for topic in waiting:
                pause_ns = max(pause_ns, self._compact(topic))
        finally:
            self._greenlet = None
        self._not_before_ns = self._clock() + pause_ns
        for topic in waiting:
            if topic.policy.retention_ns and not topic.is_closed:
                self.check_soon(topic)
        if self._to_compact and not self._is_paused:
            self._compact_alarm.set(self._not_before_ns)

    def _compact(self, topic: Topic) -> int:
        """Drop and compact what is worth it; return the pause before the next check, in ns."""
        began_ns = time.perf_counter_ns()
        try:
            if self._data_path.problem:
                self._clean_later(topic)
                return _PAUSE_WHILE_SLOW_NS
            if topic.disk_speed.is_slow:
                self._drop_in_threads(topic)
                self._clean_later(topic)
                return _PAUSE_WHILE_SLOW_NS
            self.drop_unneeded(topic)
            while topic.log is not None and self._may_go_on(topic):
                if not self._are_saved(topic):
                    self._to_compact[topic] = None  # no file may go: check again later
                    return 0
                choice = self._choose(topic, topic.log)
                took_ns = time.perf_counter_ns() - began_ns
                began_ns += took_ns
                if choice is None:
                    return _BUSY_PART * took_ns
                self._move(topic, topic.log, *choice)
            if self._disk_speed.is_slow:
                self._clean_later(topic)
        except OSError as error:
            self._log.error("TOPIC(%s): failed to make room on the disk - %s", topic.name, error)
            return _PAUSE_AFTER_FAILURE_NS
        except Exception as error:  # noqa: BLE001 - a bug with one topic must not keep the others from making room
            self._log.exception("TOPIC(%s): failed to make room on the disk - %r", topic.name, error)
            return _PAUSE_AFTER_FAILURE_NS
        return 0

    def _may_go_on(self, topic: Topic) -> bool:
        is_free = not (self._is_paused or self._disk_speed.is_slow or self._data_path.problem)
        return is_free and not topic.is_closed

    def _choose(self, topic: Topic, log: TopicLog) -> tuple[LogFile, list[Range], LogFile | None] | None:
        """Return a file that is worth compacting, its live numbers, and the neighbour that can take them, or None."""
        slices = WorkSlices()
        until = min(topic.released, self._retained_from(topic))
        before: LogFile | None = None
        for file in list(log.files[:-1]):
            if file.end_seq > until:
                break
            if _is_movable(log, file):
                found = living_of(topic, file, slices)
                alive = alive_bytes(file.segments(), found)
                moved = moved_bytes(alive, found, is_sparse=file.header.is_sparse)
                if found and is_worth_moving(file.end_offset, alive, moved):
                    is_near = before is not None and _has_all(topic, before.end_seq, file.first_seq)
                    neighbour = None
                    if is_near and _fits(log, before, moved):
                        neighbour = before
                    return file, found, neighbour
            before = file
        return None

    def _move(
        self, topic: Topic, log: TopicLog, file: LogFile, found: list[Range], neighbour: LogFile | None
    ) -> None:
        """Compact one file. Raises OSError."""
        compaction = Compaction(log, file, found, neighbour)
        finish = None
        try:
            while not compaction.is_done and self._may_go_on(topic):
                in_thread(self._services.threadpool, compaction.step)
            if compaction.is_done and not topic.is_closed and self._are_saved(topic):
                finish = compaction.settle(living(topic, file.first_seq, file.end_seq))
        except Unmovable as error:
            file.is_unmovable = True
            self._log.error("DISKQUEUE: %s; the file stays as it is", error)
        finally:
            if finish is None:
                compaction.abandon()
        if finish is not None:
            self._log.debug("DISKQUEUE: moved what is needed of %s", file.path.name)
            self._finish(log, file, finish, is_gone=neighbour is not None)

    def _finish(self, log: TopicLog, file: LogFile, finish: Callable[[], None], *, is_gone: bool) -> None:
        """Keep the space of the old file for the next one, or free it. Raises OSError."""
        is_spare = False
        try:
            in_thread(self._services.threadpool, sync_directory, log.directory)
            is_spare = is_gone and log.take_space(file)
        finally:
            if not is_spare:
                in_thread(self._services.threadpool, finish)


def _is_movable(log: TopicLog, file: LogFile) -> bool:
    """True if the file can be compacted: all needed messages can be read, and nothing else is done with it.

    A store has the other messages too, which are dropped here.
    """
    if file.is_unmovable or file.sync_error is not None:
        return False
    return file in log.files and file not in log.busy_files and log.may_drop(file)


def _has_all(topic: Topic, low: int, high: int) -> bool:
    """True if every channel has finished all of low..high (not included), so that none of it can come back."""
    if low >= high:
        return True
    return all(channel.position.finished.covers(low, high) for channel in topic.channels.values())


def _fits(log: TopicLog, neighbour: LogFile | None, moved: int) -> bool:
    """True if the neighbour can take that many bytes more: a sparse file grows to half of the largest file size."""
    if neighbour is None or neighbour not in log.files or neighbour in log.busy_files:
        return False
    if not neighbour.header.is_sparse or neighbour.sync_error is not None:
        return False
    return neighbour.end_offset + moved <= log.max_file_bytes // 2
