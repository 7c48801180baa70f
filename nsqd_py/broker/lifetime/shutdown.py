"""The end of nsqd: everything is written to disk, and all files are closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import gevent

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.broker.state_files import CleanStop, end_of, write_clean_stop
from nsqd_py.broker.upkeep.removed_files import RemovedFiles
from nsqd_py.diskqueue.journals.journal import Journal, journal_name
from nsqd_py.diskqueue.recovery import LogEnd
from nsqd_py.diskqueue.syncing import Unsynced, sync_directories
from nsqd_py.runtime.threads import in_thread

# Threads sync topics, many at a time: one after the other, 20,000 syncs took 12 s on a disk that needs 0.6 ms for one.
_SYNCED_AT_ONCE = 16


def close(broker: Broker) -> None:
    """Write everything to disk and close all files. Raises nothing; failures are logged. Blocks this greenlet."""
    topics = list(broker.topics.values())
    broker.housekeeper.pause()
    for topic in topics:
        topic.settle()
    broker.sync.join()
    broker.journals.stop()
    broker.journals.settle()
    broker.metadata.close()
    for addition in broker.additions:
        addition.close()
    broker.sync.close()
    broker.removed_files.settle()
    broker.log.info("NSQ: closing topics")
    open_ends = broker.losses.open_ends(broker.topics)
    ends = _close_topics(broker)
    broker.logs.join()
    try:
        write_clean_stop(broker.services.directory, CleanStop(ends, open_ends))
    except OSError as error:
        broker.log.error("NSQ: failed to record that this was a clean stop - %s", error)


def leave(broker: Broker) -> None:
    """End without a write: the data path is another directory. What is acknowledged is in the one that nsqd has loaded.

    Blocks this greenlet.
    """
    broker.housekeeper.pause()
    broker.journals.stop()
    broker.journals.settle()
    broker.sync.flush(len(broker.topics))
    broker.sync.close()
    broker.log.error("NSQ: nothing is written at this end: %s", broker.services.data_path.problem)


def _close_topics(broker: Broker) -> dict[str, LogEnd]:
    """Close all topics. Return the ends of the logs, without those of topics that could not be written."""
    closing = [_Closing(topic, broker.services, broker.removed_files) for topic in broker.topics.values()]
    for each in closing:
        each.write()
    count = min(_SYNCED_AT_ONCE, len(closing))
    syncing = []
    for start in range(count):
        part = closing[start::_SYNCED_AT_ONCE]
        syncing.append(gevent.spawn(in_thread, broker.services.threadpool, _sync, part))
    gevent.joinall(syncing)
    ends = {}
    for each in closing:
        end = each.close()
        if end is not None:
            ends[each.topic.name] = end
    return ends


def _sync(closing: Sequence[_Closing]) -> None:
    """Sync the logs and journals of some topics; runs in a thread."""
    directories = []
    for each in closing:
        each.sync()
        directories += [unsynced for unsynced in each.taken if unsynced.file is None]
    sync_directories(directories)


@dataclass(slots=True)
class _Closing:
    """A topic that is being closed: `write` and `close` run in the event loop, and `sync` between them in a thread.

    taken  what is synced
    end    of the log; None until all is written
    """

    topic: Topic
    services: BrokerServices
    removed_files: RemovedFiles
    taken: list[Unsynced] = field(default_factory=list)
    end: LogEnd | None = None
    is_complete: bool = True
    is_synced: bool = False
    sync_error: OSError | None = None

    def write(self) -> None:
        """Write the last publishes and the positions."""
        topic = self.topic
        log = self.topic.log
        self.services.log.info("TOPIC(%s): closing", topic.name)
        try:
            topic.close()
            for channel in topic.channels.values():
                self.services.log.info("CHANNEL(%s): closing", channel.name)
                try:
                    channel.save_final()
                except OSError as error:
                    self._failed("CHANNEL(%s): failed to write its position - %s", channel.name, error)
            if log is not None:
                if topic.is_held:
                    Journal(self.services.directory / journal_name(topic.name)).snapshot(
                        topic.retained_floor, [], []
                    )
                self.removed_files.check(topic, log, log.files)
                self.end = end_of(log)
                self.taken = log.syncs.take()
        except OSError as error:
            self._failed("TOPIC(%s): failed to close - %s", topic.name, error)

    def _failed(self, text: str, name: str, error: OSError) -> None:
        self.services.log.error(text, name, error)
        self.is_complete = False

    def sync(self) -> None:
        """Sync and close the files of the log, and sync the journals that were written."""
        if self.topic.log is not None and self.end is not None:
            self.topic.log.sync_to_end(self.taken)
        try:
            for channel in self.topic.channels.values():
                if channel.journal is not None and channel.journal.is_unsynced:
                    channel.journal.sync()
        except OSError as error:
            self.sync_error = error
        self.is_synced = True

    def close(self) -> LogEnd | None:
        """Note the result of the sync. Return the end; None if something could not be written, or there is no log."""
        log = self.topic.log
        if log is None or self.end is None:
            return None
        try:
            log.end(self.taken)
            if self.sync_error is not None:
                raise self.sync_error
        except OSError as error:
            self._failed("TOPIC(%s): failed to close - %s", self.topic.name, error)
        if self.is_complete and self.is_synced:
            return self.end
        return None
