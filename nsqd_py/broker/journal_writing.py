"""Writing down what channels finished: twenty times a second, all that changed.

A journal that has grown is replaced by a snapshot; where that is large, it is made and written in a thread.
On a disk that is slow it is done in a thread. Whoever touches a journal otherwise waits with `settle` until that is
over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gevent

from nsqd_py.diskqueue.disk_pace import CallTimer, DiskPace
from nsqd_py.pqueues import Alarms
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.journal_buffer import Unsaved
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.threads import in_thread

# docs/durability.md promises that a FIN is written 0.1 s later at most. The other half is for a loop that is late:
# on a loaded machine it took 0.101 s in the median and 0.36 s at most with 100 ms here, and 0.051 s and 0.16 s now.
JOURNAL_DELAY_NS = 50_000_000

Saved = tuple[Topic, Channel, OSError | None]


class JournalWriter:
    """The journals of all channels.

    on_saved  is told how it went with each
    """

    def __init__(
        self, alarms: Alarms, clock: Callable[[], int], threadpool: Any, pace: DiskPace,
        on_saved: Callable[[list[Saved]], None],
    ) -> None:  # fmt: skip
        self._clock = clock
        self._threadpool = threadpool
        self._pace = pace
        self._on_saved = on_saved
        self._alarm = alarms.alarm(self._write)
        self._changed: list[tuple[Topic, Channel]] = []
        self._greenlet: Any = None
        self._replacing: Any = None

    def channel_changed(self, topic: Topic, channel: Channel) -> None:
        """The first change since its journal was written last."""
        self._changed.append((topic, channel))
        if self._alarm.due_ns is None:
            self._alarm.set(self._clock() + JOURNAL_DELAY_NS)

    def save_now(self, topic: Topic) -> bool:
        """Write down what is new in the channels of a topic; False while a thread writes. Raises OSError."""
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
        # A snapshot takes several calls of the system: a thread does those.
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
        finally:
            self._greenlet = None
            self._pace.end(writing, writing.timer.slowest_ns)
        saved: list[Saved] = []
        for topic, channel, unsaved in taken:
            self._save(saved, topic, channel, partial(channel.end_save, unsaved))
        self._on_saved(saved)
        self._replace_large(saved)

    def _replace_large(self, saved: list[Saved]) -> None:
        """Begin to replace the first journal that needs a large snapshot, unless one is being replaced."""
        for topic, channel, _ in saved:
            if self._replacing is None and not channel.is_closed and channel.wants_replacement:
                self._replacing = gevent.spawn(self._replace_in_thread, topic, channel)

    def _replace_in_thread(self, topic: Topic, channel: Channel) -> None:
        """Make and write a large snapshot of a channel; its changes are written as ever in the meantime."""
        replacement = channel.begin_replacement()
        try:
            in_thread(self._threadpool, replacement.write)
            if self._greenlet is not None:  # a change that a thread is writing must not fall between the two files
                self._greenlet.join()
            replacement.finish()
        except OSError as error:
            replacement.abandon()
            self._on_saved([(topic, channel, error)])
        finally:
            self._replacing = None

    def _save(self, saved: list[Saved], topic: Topic, channel: Channel, save: Callable[[], None]) -> None:
        """Save a channel, or end that, and note how it went; what failed is tried again."""
        error: OSError | None = None
        try:
            save()
        except OSError as failure:
            error = failure
            self.channel_changed(topic, channel)
        saved.append((topic, channel, error))

    @property
    def is_writing(self) -> bool:
        """True while a thread writes, or is about to."""
        return bool(self._busy())

    def _busy(self) -> list[Any]:
        return [each for each in (self._greenlet, self._replacing) if each is not None and not each.ready()]

    def settle(self) -> None:
        """Wait until no thread writes. May block this greenlet."""
        # A write that ends may begin a snapshot, or the next write: whoever settled moves positions or removes files,
        # and neither may be followed by an entry from before.
        while busy := self._busy():
            busy[0].join()

    def stop(self) -> None:
        """Write no more."""
        self._alarm.set(None)


class _Writing:
    """A thread's work; `timer` measures each journal."""

    def __init__(self, unsaved: list[Unsaved]) -> None:
        self.timer = CallTimer()
        self._unsaved = unsaved

    def run(self) -> None:
        for each in self._unsaved:
            with self.timer:
                each.write()
