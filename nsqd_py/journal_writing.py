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

from nsqd_py.channel import Channel
from nsqd_py.pqueues import Alarms
from nsqd_py.progress import Unsaved
from nsqd_py.threads import in_thread
from nsqd_py.topic import Topic

# docs/durability.md promises that a FIN is written 0.1 s later at most. The other half is for a loop that is late:
# on a loaded machine it took 0.101 s in the median and 0.36 s at most with 100 ms here, and 0.051 s and 0.16 s now.
JOURNAL_DELAY_NS = 50_000_000

Saved = tuple[Topic, Channel, OSError | None]


class JournalWriter:
    """The journals of all channels.

    on_saved  is told how it went with each
    """

    def __init__(
        self, alarms: Alarms, clock: Callable[[], int], threadpool: Any, is_slow: Callable[[], bool],
        on_saved: Callable[[list[Saved]], None],
    ) -> None:  # fmt: skip
        self._clock = clock
        self._threadpool = threadpool
        self._is_slow = is_slow
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
        if self._is_slow():
            self._greenlet = gevent.spawn(self._write_in_thread, changed)
        else:
            self._note([(topic, channel, channel.save_changes) for topic, channel in changed])

    def _write_in_thread(self, changed: list[tuple[Topic, Channel]]) -> None:
        taken = [(topic, channel, channel.take_changes()) for topic, channel in changed]
        try:
            in_thread(self._threadpool, _write_all, [unsaved for _, _, unsaved in taken])
        finally:
            self._greenlet = None
        self._note([(topic, channel, partial(channel.end_save, unsaved)) for topic, channel, unsaved in taken])

    def _note(self, saves: list[tuple[Topic, Channel, Callable[[], None]]]) -> None:
        """Save each, or end that, and tell how it went; what failed is tried again."""
        saved: list[Saved] = []
        for topic, channel, save in saves:
            error: OSError | None = None
            try:
                save()
            except OSError as failure:
                error = failure
                self.channel_changed(topic, channel)
            saved.append((topic, channel, error))
        self._on_saved(saved)
        for topic, channel, _ in saves:
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

    def settle(self) -> None:
        """Wait until no thread writes. May block this greenlet."""
        for greenlet in (self._greenlet, self._replacing):
            if greenlet is not None:
                greenlet.join()

    def stop(self) -> None:
        """Write no more."""
        self._alarm.set(None)


def _write_all(unsaved: list[Unsaved]) -> None:
    for each in unsaved:
        each.write()
