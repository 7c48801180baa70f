"""Closing the topics at the end of the process. A failure to write one of them is logged, and the others are closed.

Threads sync them, many at a time: one after the other, 20,000 syncs took 12 s on a disk that needs 0.6 ms for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gevent

from nsqd_py.broker.state_files import LogEnd, end_of
from nsqd_py.diskqueue.syncing import Unsynced, sync_directories
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.threads import in_thread

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker

_SYNCED_AT_ONCE = 16


def close_topics(broker: Broker, threadpool: Any) -> dict[str, LogEnd]:
    """Write, sync and close all topics. Return the ends of the logs, without those of topics that could not be written.

    Blocks this greenlet.
    """
    closing = [_Closing(broker, topic) for topic in list(broker.topics.values())]
    for each in closing:
        each.write()
    shares = [closing[start::_SYNCED_AT_ONCE] for start in range(min(_SYNCED_AT_ONCE, len(closing)))]
    gevent.joinall([gevent.spawn(in_thread, threadpool, _sync, share) for share in shares])
    return {each.topic.name: end for each in closing if (end := each.close()) is not None}


def _sync(share: Sequence[_Closing]) -> None:
    """Sync the logs and journals of some topics; runs in a thread."""
    for each in share:
        each.sync()
    sync_directories([unsynced for each in share for unsynced in each.taken if unsynced.file is None])


class _Closing:
    """A topic that is being closed: `write` and `close` run in the event loop, and `sync` between them in a thread.

    taken  what is synced
    """

    __slots__ = ("_broker", "_end", "_is_synced", "_is_written", "_sync_error", "taken", "topic")

    def __init__(self, broker: Broker, topic: Topic) -> None:
        self.topic = topic
        self.taken: list[Unsynced] = []
        self._broker = broker
        self._end: LogEnd | None = None
        self._is_written = True
        self._is_synced = False
        self._sync_error: OSError | None = None

    def write(self) -> None:
        """Write the last publishes and the positions."""
        broker, topic = self._broker, self.topic
        broker.log.info("TOPIC(%s): closing", topic.name)
        try:
            topic.close()
            for channel in topic.channels.values():
                self._write_channel(channel)
            if topic.log is not None:
                broker.save_held(topic)
                broker.removed_files.look_at_the_end(topic, topic.log)
                self._end = end_of(topic.log)
                self.taken = topic.log.take_unsynced()
        except OSError as error:
            self._failed(error)

    def _write_channel(self, channel: Channel) -> None:
        self._broker.log.info("CHANNEL(%s): closing", channel.name)
        try:
            channel.save_at_the_end()
        except OSError as error:
            self._broker.log.error("CHANNEL(%s): failed to write its position - %s", channel.name, error)
            self._is_written = False

    def _failed(self, error: OSError) -> None:
        self._broker.log.error("TOPIC(%s): failed to close - %s", self.topic.name, error)
        self._is_written = False

    def sync(self) -> None:
        """Sync and close the files of the log, and sync the journals that were written."""
        if self.topic.log is not None and self._end is not None:
            self.topic.log.sync_to_end(self.taken)
        try:
            for channel in self.topic.channels.values():
                if channel.journal is not None and channel.journal.is_unsynced:
                    channel.journal.sync()
        except OSError as error:
            self._sync_error = error
        self._is_synced = True

    def close(self) -> LogEnd | None:
        """Note the result of the sync. Return its end; None if something could not be written, or there is no log."""
        log = self.topic.log
        if log is None or self._end is None:
            return None
        try:
            log.end(self.taken)
            if self._sync_error is not None:
                raise self._sync_error
        except OSError as error:
            self._failed(error)
        return self._end if self._is_written and self._is_synced else None
