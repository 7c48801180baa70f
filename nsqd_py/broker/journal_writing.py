"""Writing the positions of channels to their journals, twenty times a second.

A journal that has grown is replaced by a snapshot; a thread makes and writes a large one. While the disk is slow, a
thread does all the writing. Code that touches a journal otherwise must first wait with `settle`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gevent

from nsqd_py.pqueues import Alarms
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.journal_buffer import Unsaved
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.disk_pace import CallTimer, DiskPace
from nsqd_py.runtime.threads import in_thread

# docs/durability.md promises that a FIN is written within 0.1 s. Half of that is for a late event loop: on a loaded
# machine it took 0.051 s in the median and 0.16 s at most; with 100 ms here, it was 0.101 s and 0.36 s.
JOURNAL_DELAY_NS = 50_000_000

Saved = tuple[Topic, Channel, OSError | None]


class JournalWriter:
    """Writes the journals of all channels.

    on_saved  called with the results of each round
    """

    def __init__(
        self, alarms: Alarms, clock: Callable[[], int], threadpool: Any, pace: DiskPace, on_saved: Callable[[list[Saved]], None]
    ) -> None:
        self._clock = clock
        self._threadpool = threadpool
        self._pace = pace
        self._on_saved = on_saved
        self._alarm = alarms.alarm(self._write)
        self._changed: list[tuple[Topic, Channel]] = []
        self._greenlet: Any = None
        self._replacing: Any = None

    def channel_changed(self, topic: Topic, channel: Channel) -> None:
        """Schedule a write; called at the first change since the last write of the channel's journal."""
        self._changed.append((topic, channel))
        if self._alarm.due_ns is None:
            self._alarm.set(self._clock() + JOURNAL_DELAY_NS)

    def save_now(self, topic: Topic) -> bool:
        """Write the changes of a topic's channels; return False while a thread writes. Raises OSError."""
        if self._greenlet is not None:
            return False
        for channel in topic.channels.values():
            if channel.is_dirty:
                channel.save_changes()
        return True

    def _write(self, now_ns: int) -> None:
        if self._greenlet is not None:
            self._alarm.set(now_ns + JOURNAL_DELAY_NS)
            return
        changed, self._changed = self._changed, []
        changed = [(topic, channel) for topic, channel in changed if not channel.is_closed]
        # A snapshot takes several system calls, so a thread writes it.
        large = [(topic, channel) for topic, channel in changed if channel.wants_snapshot]
        changed = [(topic, channel) for topic, channel in changed if not channel.wants_snapshot]
        saved: list[Saved] = []
        while changed and not self._pace.is_slow:
            self._pace.timed(partial(self._save, saved, *changed[-1], changed[-1][1].save_changes))
            changed.pop()
        if saved:
            self._on_saved(saved)
            self._replace_large(saved)
        if changed or large:
            self._greenlet = gevent.spawn(self._write_in_thread, changed + large)

    def _write_in_thread(self, changed: list[tuple[Topic, Channel]]) -> None:
        taken = [(topic, channel, channel.take_changes()) for topic, channel in changed]
        writing = _Writing([unsaved for _, _, unsaved in taken])
        self._pace.begin(writing)
        try:
            in_thread(self._threadpool, writing.run)
        except Exception as error:  # noqa: BLE001 - after a bug, the changes must be written again, not dropped
            for _, _, unsaved in taken:
                unsaved.error = unsaved.error or OSError(f"internal error: {error!r}")
        finally:
            self._greenlet = None
            self._pace.end(writing, writing.timer.slowest_ns)
        saved: list[Saved] = []
        for topic, channel, unsaved in taken:
            self._save(saved, topic, channel, partial(channel.end_save, unsaved))
        self._on_saved(saved)
        self._replace_large(saved)

    def _replace_large(self, saved: list[Saved]) -> None:
        """Begin to replace the first journal that needs a large snapshot, unless a replacement is running."""
        for topic, channel, _ in saved:
            if self._replacing is None and not channel.is_closed and channel.wants_replacement:
                self._replacing = gevent.spawn(self._replace_in_thread, topic, channel)

    def _replace_in_thread(self, topic: Topic, channel: Channel) -> None:
        """Make and write a large snapshot of a channel, while its changes are still appended to the old journal."""
        replacement = channel.begin_replacement()
        try:
            in_thread(self._threadpool, replacement.write)
            if self._greenlet is not None:  # a change that a thread is writing must not get lost between the two files
                self._greenlet.join()
            replacement.finish()
        except OSError as error:
            replacement.abandon()
            self._on_saved([(topic, channel, error.with_traceback(None))])
        finally:
            self._replacing = None

    def _save(self, saved: list[Saved], topic: Topic, channel: Channel, save: Callable[[], None]) -> None:
        """Call `save` and add its result to `saved`; a failure is tried again."""
        error: OSError | None = None
        try:
            save()
        except OSError as failure:
            error = failure.with_traceback(None)  # it is kept, and its frames hold it
            self.channel_changed(topic, channel)
        except Exception as failure:  # noqa: BLE001 - a bug with one channel must not drop the changes of the others
            error = OSError(f"internal error: {failure!r}")
            self.channel_changed(topic, channel)
        saved.append((topic, channel, error))

    @property
    def is_writing(self) -> bool:
        """True while a thread writes, or is about to write."""
        return bool(self._busy())

    def _busy(self) -> list[Any]:
        return [each for each in (self._greenlet, self._replacing) if each is not None and not each.ready()]

    def settle(self) -> None:
        """Wait until no thread writes. May block this greenlet."""
        # A finished write may begin a snapshot or the next write. The caller will move positions or remove files, and
        # no older entry may be written after that.
        while busy := self._busy():
            busy[0].join()

    def stop(self) -> None:
        """Write no more."""
        self._alarm.set(None)


class _Writing:
    """A round of journal writes in a thread; `timer` measures each journal."""

    def __init__(self, unsaved: list[Unsaved]) -> None:
        self.timer = CallTimer()
        self._unsaved = unsaved

    def run(self) -> None:
        for each in self._unsaved:
            with self.timer:
                each.write()
