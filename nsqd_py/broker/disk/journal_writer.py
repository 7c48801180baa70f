"""Writing the positions of channels to their journals, twenty times a second, in slices of 1 ms.

A journal that has grown is replaced by a snapshot; a thread makes and writes a large one, and what has many changes. While the
disk is slow, a thread does all the writing. Code that touches a journal otherwise must first wait with `settle`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import gevent

from nsqd_py.broker.disk.slow_disk import disk_error, in_timed_thread
from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.queue.channel import Channel
from nsqd_py.runtime.pacing import SLICE_S
from nsqd_py.runtime.threads import in_thread

# docs/durability.md promises that a FIN is written within 0.1 s. Half of that is for a late event loop: on a loaded
# machine it took 0.051 s in the median and 0.16 s at most; with 100 ms here, it was 0.101 s and 0.36 s.
JOURNAL_DELAY_NS = 50_000_000

_Owned = tuple[Topic, Channel]  # a channel, with its topic
SaveResult = tuple[Topic, Channel, OSError | None]


class JournalWriter:
    """Writes the journals of all channels.

    on_saved  called with the results of each round
    """

    def __init__(self, services: BrokerServices, on_saved: Callable[[list[SaveResult]], None]) -> None:
        self._services = services
        self._disk_speed = services.disk_speed
        self._on_saved = on_saved
        self._alarm = services.alarms.alarm(self._write)
        self._changed: list[_Owned] = []
        self._greenlet: Any = None
        self._snapshotting: Any = None

    def channel_changed(self, topic: Topic, channel: Channel) -> None:
        """Schedule a write; called at the first change since the last write of the channel's journal."""
        self._changed.append((topic, channel))
        if self._alarm.due_ns is None:
            self._alarm.set(self._services.clock() + JOURNAL_DELAY_NS)

    def save_now(self, topic: Topic) -> bool:
        """Write the changes of a topic's channels; return False while a thread writes. Raises OSError."""
        if self._greenlet is not None:
            return False
        for channel in topic.channels.values():
            if channel.is_dirty:
                channel.save_changes()
        return True

    def save_in_thread(self, topic: Topic) -> None:
        """Write the changes of a topic's channels, in a thread; what fails is retried. Blocks this greenlet."""
        self.settle()
        changed = [(topic, channel) for channel in topic.channels.values() if channel.is_dirty]
        if changed:
            self._greenlet = gevent.spawn(self._write_in_thread, changed)
            self._greenlet.join()

    def _write(self, now_ns: int) -> None:
        if self._greenlet is not None or self._services.data_path.problem:
            self._alarm.set(now_ns + JOURNAL_DELAY_NS)
            return
        changed, self._changed = self._changed, []
        # A snapshot takes several system calls, so a thread writes it.
        large = []
        saved: list[SaveResult] = []
        end_s = monotonic() + SLICE_S
        while changed and not self._disk_speed.is_slow and monotonic() < end_s:
            topic, channel = changed[-1]
            if channel.wants_snapshot or channel.has_many_changes:
                large.append((topic, channel))
            elif not channel.is_closed:
                self._disk_speed.timed(partial(self._save, saved, topic, channel, channel.save_changes))
            changed.pop()
        if saved:
            self._on_saved(saved)
            self._snapshot_large(saved)
        if self._disk_speed.is_slow:
            large += changed
        elif changed:
            self._changed += changed  # behind those that failed, so that these are next
            has_failed = any(error is not None for _, _, error in saved)
            self._alarm.set(now_ns + JOURNAL_DELAY_NS if has_failed else now_ns)
        if large:
            self._greenlet = gevent.spawn(self._write_in_thread, large)

    def _write_in_thread(self, changed: list[_Owned]) -> None:
        taken = [
            (topic, channel, channel.begin_save()) for topic, channel in changed if not channel.is_closed
        ]
        try:
            writes = [unsaved.write for _, _, unsaved in taken]
            in_timed_thread(self._services.threadpool, self._disk_speed, *writes)
        except Exception as error:  # noqa: BLE001 - after a bug, the changes must stay, and not be dropped
            for _, _, unsaved in taken:
                unsaved.error = unsaved.error or disk_error(error)
        finally:
            self._greenlet = None
        saved: list[SaveResult] = []
        for topic, channel, unsaved in taken:
            self._save(saved, topic, channel, partial(channel.end_save, unsaved))
        self._on_saved(saved)
        self._snapshot_large(saved)

    def _snapshot_large(self, saved: list[SaveResult]) -> None:
        """Begin to replace the first journal that needs a large snapshot, unless one is being written."""
        for topic, channel, _ in saved:
            if self._snapshotting is None and not channel.is_closed and channel.wants_large_snapshot:
                self._snapshotting = gevent.spawn(self._snapshot_in_thread, topic, channel)

    def _snapshot_in_thread(self, topic: Topic, channel: Channel) -> None:
        """Make and write a large snapshot of a channel, while its changes are still appended to the old journal."""
        large_snapshot = None
        try:
            large_snapshot = channel.begin_large_snapshot()
            in_thread(self._services.threadpool, large_snapshot.write)
            # A change that a thread is writing must not get lost between the two files.
            if self._greenlet is not None:
                self._greenlet.join()
            large_snapshot.finish()
        except Exception as error:  # noqa: BLE001 - after a bug, the next one must begin
            if large_snapshot is not None:
                large_snapshot.abandon()
            self._on_saved([(topic, channel, disk_error(error))])
        finally:
            self._snapshotting = None

    def _save(
        self, saved: list[SaveResult], topic: Topic, channel: Channel, save: Callable[[], None]
    ) -> None:
        """Call `save` and add its result to `saved`; a failure is retried."""
        error: OSError | None = None
        try:
            save()
        except Exception as failure:  # noqa: BLE001 - a bug with one channel must not drop the changes of the others
            error = disk_error(failure)
            self.channel_changed(topic, channel)
        saved.append((topic, channel, error))

    @property
    def is_writing(self) -> bool:
        """True while a thread writes, or is about to write."""
        return bool(self._busy())

    def _busy(self) -> list[Any]:
        return [
            each for each in (self._greenlet, self._snapshotting) if each is not None and not each.ready()
        ]

    def settle(self) -> None:
        """Wait until no thread writes. May block this greenlet."""
        # A finished write may begin a snapshot or the next write. The caller will move positions or remove files, and
        # no older entry may be written after that.
        while busy := self._busy():
            busy[0].join()

    def stop(self) -> None:
        """Write no more."""
        self._alarm.set(None)
