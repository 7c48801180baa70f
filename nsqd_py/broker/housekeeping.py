"""Letting go of what nobody needs any more, in memory and on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from nsqd_py.broker.compactor import Compactor
from nsqd_py.broker.disk_health import DiskHealth
from nsqd_py.broker.journal_writing import JOURNAL_DELAY_NS, Saved
from nsqd_py.diskqueue.disk_pace import DiskPace
from nsqd_py.pqueues import Alarms
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.logs import Log


class Tidier:
    """Looks at topics whose channels have moved; later, while the disk is slow.

    write_position  writes down up to where a topic's messages are done with
    """

    def __init__(
        self, compactor: Compactor, pace: DiskPace, disk: DiskHealth, alarms: Alarms, clock: Callable[[], int],
        log: Log, write_position: Callable[[Topic, int], None],
    ) -> None:  # fmt: skip
        self._compactor = compactor
        self._pace = pace
        self._disk = disk
        self._clock = clock
        self._log = log
        self._write_position = write_position
        self._untidy: dict[Topic, None] = {}
        self._alarm = alarms.alarm(self._tidy_all)

    def saved(self, saved: list[Saved]) -> None:
        """Journals were written, or could not be."""
        for topic, channel, error in saved:
            self._disk.position_saved(topic, error)
            if error is not None:
                self._log.error("CHANNEL(%s): failed to write its position - %s", channel.name, error)
            self._untidy[topic] = None
        self._tidy_all(self._clock())

    def _tidy_all(self, now_ns: int) -> None:
        while self._untidy:
            if self._pace.is_slow:  # it can wait
                self._alarm.set(now_ns + JOURNAL_DELAY_NS)
                return
            topic = next(iter(self._untidy))
            del self._untidy[topic]
            if not topic.is_closed:
                self._pace.timed(partial(self._save_without_channels, topic))
                self.tidy(topic)

    def _save_without_channels(self, topic: Topic) -> None:
        """Where all channels are ephemeral, and keep no journal, the topic remembers what they are done with."""
        if topic.log is None or any(channel.journal is not None for channel in topic.channels.values()):
            return
        floor = min((channel.position.finished.floor for channel in topic.channels.values()), default=topic.released)
        try:
            self._write_position(topic, floor)
        except OSError as error:
            self._disk.position_failed(topic, error)

    def tidy(self, topic: Topic) -> None:
        """Trim its memory, and drop or compact its files; the files later, while the disk is slow."""
        topic.trim_memory()
        if topic.log is not None:
            if self._pace.is_slow:
                self._untidy[topic] = None
                self._alarm.set_no_later(self._clock() + JOURNAL_DELAY_NS)
                return
            try:
                self._compactor.drop_unneeded(topic)
            except OSError as error:
                self._log.error("TOPIC(%s): failed to remove a file - %s", topic.name, error)
            self._compactor.look_at(topic)

    def make_room(self, topic: Topic) -> None:
        """There is little space: let go of the file that is written to, too, when nobody needs what is in it.

        One of which little is needed is closed, so that the rest of it can be let go.
        """
        log = topic.log
        if log is None or topic.is_slow:
            return
        if log.files and not topic.is_needed(log.files[-1].first_seq, log.next_seq):
            with contextlib.suppress(OSError):  # a full disk has no place for a new file
                log.roll()
        self.tidy(topic)
        self._compactor.look_at_open_file(topic)

    def close(self) -> None:
        self._alarm.set(None)
